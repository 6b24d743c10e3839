//! Signals that ask this process to end: its command and all in the command's group get them, and no temporary folder stays
//! behind.

use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use signal_hook::iterator::Signals;

use crate::launch::descendants;

/// What is taken: Ctrl-C, a polite end, the terminal's end.
const TAKEN: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
/// How long the command may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(10);

/// Temporary folders that are there.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static RUNNING: Mutex<Running> = Mutex::new(Running { command: None, signal: None });

/// What a signal concerns.
struct Running {
    command: Option<Started>,
    signal: Option<Signal>,
}

#[derive(Clone, Copy)]
struct Started {
    pid: Pid,
    /// At a terminal the command stays in our group, so that it may read from there; Ctrl-C reaches it without us.
    own_group: bool,
}

impl Started {
    /// The command and all that it started, which a terminal's group would not tell from us.
    fn kill_all(self) {
        let below = if self.own_group { Vec::new() } else { descendants(self.pid.as_raw(), &[]) };
        self.signal_all(Signal::SIGKILL);
        for pid in below {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    fn signal_all(self, signal: Signal) {
        // Whoever is gone needs no signal.
        let _ = if self.own_group { killpg(self.pid, signal) } else { kill(self.pid, signal) };
    }
}

/// How a command ended.
pub(crate) enum End {
    Exited(ExitStatus),
    /// Because this process was asked to end.
    Interrupted(Signal),
}

/// A temporary folder that `make` makes; it goes when a signal ends this process. Signals are taken from now on.
pub(crate) fn register_folder(make: impl FnOnce() -> io::Result<PathBuf>) -> io::Result<PathBuf> {
    take_signals();
    // Held while it is made: no signal finds it half remembered.
    let mut folders = registered_folders();
    let path = make()?;
    folders.push(path.clone());
    Ok(path)
}

/// The folder goes otherwise.
pub(crate) fn forget_folder(path: &Path) {
    registered_folders().retain(|folder| folder != path);
}

fn registered_folders() -> MutexGuard<'static, Vec<PathBuf>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove_folders() {
    for folder in registered_folders().drain(..) {
        let _ = fs::remove_dir_all(folder);
    }
}

/// Runs `command` to its end. Where a signal ended it, what it started gets the time to finish what `is_unfinished` tells.
pub(crate) fn run_command(command: &mut Command, is_unfinished: &dyn Fn() -> bool) -> io::Result<End> {
    let own_group = !io::stdin().is_terminal();
    if own_group {
        command.process_group(0);
    }
    take_signals();
    let mut child = {
        // Held until it has started: a signal waits for that.
        let mut running = running_commands();
        let child = command.spawn()?;
        *running = Running {
            command: Some(Started { pid: Pid::from_raw(child.id().cast_signed()), own_group }),
            signal: None,
        };
        child
    };
    wait_for(&mut child, is_unfinished)
}

fn wait_for(child: &mut Child, is_unfinished: &dyn Fn() -> bool) -> io::Result<End> {
    let status = child.wait();
    let mut running = running_commands();
    let command = running.command.take();
    let Some(signal) = running.signal else { return Ok(End::Exited(status?)) };
    drop(running);
    // A shell that the signal ended leaves others behind.
    let ended = Instant::now();
    while is_unfinished() && ended.elapsed() < GRACE {
        thread::sleep(Duration::from_millis(20));
    }
    if let Some(command) = command.filter(|command| command.own_group) {
        command.signal_all(Signal::SIGKILL);
    }
    Ok(End::Interrupted(signal))
}

fn running_commands() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether whoever started this process has it outlive its terminal, as `nohup` does.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Gives the signals to a thread of their own, whichever thread they come to. They are caught, not blocked: what a process blocks
/// is blocked in the commands that it starts, and a thread that unblocks them to start one can be ended by one, and this process with it.
fn take_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Where they cannot be caught they end this process at once, as without us.
        let taken = TAKEN.into_iter().filter(|signal| *signal != Signal::SIGHUP || !ignores_hangup());
        if let Ok(mut signals) = Signals::new(taken.map(|signal| signal as i32)) {
            thread::spawn(move || {
                signals.forever().filter_map(|number| Signal::try_from(number).ok()).for_each(end_by_signal);
            });
        }
    });
}

fn end_by_signal(signal: Signal) {
    let mut now = running_commands();
    let Some(command) = now.command else {
        // The command has not begun, or its report is being made.
        remove_folders();
        std::process::exit(128 + signal as i32);
    };
    now.signal = Some(signal);
    drop(now);
    if command.own_group || signal == Signal::SIGTERM {
        command.signal_all(signal);
    }
    let asked = Instant::now();
    while running_commands().command.is_some() {
        if asked.elapsed() > GRACE {
            command.kill_all();
        }
        thread::sleep(Duration::from_millis(20));
    }
}
