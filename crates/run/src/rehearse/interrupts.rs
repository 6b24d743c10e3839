//! Signals that ask a rehearsal to end: its command and all in the command's group get them, and no folder stays behind.

use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::unistd::Pid;

/// What is taken: Ctrl-C, a polite end, the terminal's end.
const TAKEN: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
/// How long the command may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(10);

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
    fn signal(self, signal: Signal) {
        // Whoever is gone needs no signal.
        let _ = if self.own_group { killpg(self.pid, signal) } else { kill(self.pid, signal) };
    }
}

/// How a command ended.
pub(super) enum End {
    /// By itself.
    Exited(ExitStatus),
    /// Because this process was asked to end.
    Interrupted(Signal),
}

/// Runs `command` to its end.
pub(super) fn run(command: &mut Command) -> io::Result<End> {
    let own_group = !io::stdin().is_terminal();
    if own_group {
        command.process_group(0);
    }
    take();
    let mut child = {
        let mut running = running();
        let child = spawn_unblocked(command)?;
        *running = Running {
            command: Some(Started { pid: Pid::from_raw(child.id().cast_signed()), own_group }),
            signal: None,
        };
        child
    };
    wait(&mut child)
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

fn wait(child: &mut Child) -> io::Result<End> {
    let status = child.wait();
    let mut running = running();
    let command = running.command.take();
    let Some(signal) = running.signal else { return Ok(End::Exited(status?)) };
    if let Some(command) = command.filter(|command| command.own_group) {
        command.signal(Signal::SIGKILL);
    }
    Ok(End::Interrupted(signal))
}

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks the signals in this thread and all that it starts; a thread of their own takes them.
pub(crate) fn take() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let set = taken_signals();
        // Where they cannot be blocked they end this process at once, as without us.
        if set.thread_block().is_ok() {
            thread::spawn(move || {
                while let Ok(signal) = set.wait() {
                    taken(signal);
                }
            });
        }
    });
}

fn taken(signal: Signal) {
    let mut now = running();
    let Some(command) = now.command else {
        // The command has not begun, or its report is being made.
        crate::private::remove_all();
        std::process::exit(128 + signal as i32);
    };
    now.signal = Some(signal);
    drop(now);
    if command.own_group || signal == Signal::SIGTERM {
        command.signal(signal);
    }
    let asked = Instant::now();
    while running().command.is_some() {
        if asked.elapsed() > GRACE {
            command.signal(Signal::SIGKILL);
        }
        thread::sleep(Duration::from_millis(20));
    }
}
