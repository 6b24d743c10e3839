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

use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::unistd::Pid;

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
    block_signals();
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
    block_signals();
    let mut child = {
        let mut running = running_commands();
        let child = spawn_unblocked(command)?;
        *running = Running {
            command: Some(Started { pid: Pid::from_raw(child.id().cast_signed()), own_group }),
            signal: None,
        };
        child
    };
    wait_for(&mut child, is_unfinished)
}

/// The command inherits what is blocked in the thread that starts it.
fn spawn_unblocked(command: &mut Command) -> io::Result<Child> {
    thread::scope(|scope| {
        let started = scope.spawn(|| {
            taken_signals().thread_unblock()?;
            command.spawn()
        });
        started.join().unwrap_or_else(|_| Err(io::Error::other("it could not be started")))
    })
}

fn taken_signals() -> SigSet {
    TAKEN.into_iter().collect()
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

/// Blocks the signals in this thread and all that it starts; a thread of their own takes them.
fn block_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let set = taken_signals();
        // Where they cannot be blocked they end this process at once, as without us.
        if set.thread_block().is_ok() {
            thread::spawn(move || {
                while let Ok(signal) = set.wait() {
                    end_by_signal(signal);
                }
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
