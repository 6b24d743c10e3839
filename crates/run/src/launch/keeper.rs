//! The keeper: a small process between supervisor and command, the parent of everything that the command starts.
//!
//! Its stdin is a socket to the supervisor. Downwards come first the words of the command as a JSON array, then `signal N` and
//! `end N` (seconds of grace); when the socket closes, the supervisor is dead and everything is ended. Upwards go
//! `started PID KEEPER`, `failed WHY` and `exited CODE` or `signalled N`. The words are in no list of processes: who kills all
//! that runs `train.py` by name does not kill its keeper.
//!
//! How the command ended is also left in the attempt's folder (`evidence`), for a supervisor that died before it heard of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getppid};
use tonnage_core::record::ExitRecord;

use super::evidence::{self, Evidence};
use super::tree;
use crate::os;

/// What the keeper says with its own exit code when the command cannot be started.
const NOT_STARTED: u8 = 127;
/// How long the processes that a command leaves behind are waited for.
const AFTER_THE_COMMAND: Duration = Duration::from_secs(5);
/// What ends other processes politely. Who keeps a command is ended by its socket, or by the command's end.
const POLITE: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGALRM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Runs the command that the supervisor names until it and all it started are gone. `grace` is given to what must be ended; `logs` is
/// the attempt's folder.
pub fn keep_command(grace: Duration, logs: Option<PathBuf>) -> ExitCode {
    hold_out("tonnage");
    let code = keep_until_gone(grace, logs);
    wake_guardian();
    code
}

fn keep_until_gone(grace: Duration, logs: Option<PathBuf>) -> ExitCode {
    let Ok(stdin) = std::io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::from(NOT_STARTED) };
    let mut control = UnixStream::from(stdin);
    let Some((lines, argv)) = read_command(&control) else { return ExitCode::from(NOT_STARTED) };
    match start_command(&argv) {
        Ok(child) => {
            let pid = child.id().cast_signed();
            say_line(&mut control, &format!("started {pid} {}", own_pid()));
            let asked = Asked::default();
            follow_control(lines, pid, grace, asked.clone());
            reap_children(&mut control, pid, grace, &Witness { logs, asked, began: Instant::now() });
            ExitCode::SUCCESS
        }
        Err(reason) => {
            say_line(&mut control, &format!("failed {reason}"));
            ExitCode::from(NOT_STARTED)
        }
    }
}

/// Takes no polite signal, is called `name` in lists of processes, and becomes the parent of orphans below it.
pub(super) fn hold_out(name: &str) {
    let set: SigSet = POLITE.into_iter().collect();
    // What cannot be had is done without: the processes above and below see this one's death.
    let _ = set.thread_block();
    os::adopt_orphans();
    os::set_name(name);
}

/// The command's words, the first line that the supervisor says.
fn read_command(control: &UnixStream) -> Option<(BufReader<UnixStream>, Vec<String>)> {
    let mut lines = BufReader::new(control.try_clone().ok()?);
    let mut line = String::new();
    lines.read_line(&mut line).ok()?;
    Some((lines, serde_json::from_str(&line).ok()?))
}

/// Starts the command by way of [`begin_command`]; `Err` says why it cannot be started.
fn start_command(argv: &[String]) -> Result<Child, String> {
    let words = |error: std::io::Error| error.to_string();
    let (mut ours, theirs) = UnixStream::pair().map_err(words)?;
    let mut command = Command::new(os::OWN_PROGRAM);
    command.arg0("tonnage").arg("begin").arg(own_pid().to_string()).arg("--").args(argv);
    command.stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0);
    // The last resort, where supervisor, guardian and keeper die at once.
    os::die_with_parent(&mut command);
    let mut child = command.spawn().map_err(words)?;
    // It holds the other end of the socket.
    drop(command);
    let mut reason = String::new();
    // The socket closes when the command takes over.
    match ours.read_to_string(&mut reason) {
        Ok(0) => Ok(child),
        _ => {
            let _ = child.wait();
            Err(reason.trim().to_owned())
        }
    }
}

/// Becomes the command `argv`, where `keeper` has not died before the kernel was asked to end it then. What is on stdin hears why it
/// cannot.
pub fn begin_command(keeper: i32, argv: &[std::ffi::OsString]) -> ExitCode {
    let Ok(stdin) = std::io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::from(NOT_STARTED) };
    // The keeper takes no signals; the command must not inherit that.
    let _ = SigSet::empty().thread_set_mask();
    let is_orphan = getppid().as_raw() != keeper;
    let Some((program, arguments)) = argv.split_first().filter(|_| !is_orphan) else {
        return ExitCode::from(NOT_STARTED);
    };
    let error = Command::new(program).args(arguments).stdin(Stdio::null()).exec();
    // A keeper that is gone hears nothing.
    let _ = UnixStream::from(stdin).write_all(error.to_string().as_bytes());
    ExitCode::from(NOT_STARTED)
}

/// A supervisor that is gone hears nothing; that is seen by the listener.
fn say_line(control: &mut UnixStream, line: &str) {
    let _ = control.write_all(format!("{line}\n").as_bytes());
}

/// Whether the command was asked to end before it did.
#[derive(Clone, Default)]
struct Asked(Arc<AtomicBool>);

impl Asked {
    /// Notes that `leader` is asked now; one that is over already was not.
    fn note_leader(&self, leader: i32) {
        if os::is_child_running(leader) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}

/// What is known of an end, beside how it was.
struct Witness {
    logs: Option<PathBuf>,
    asked: Asked,
    began: Instant,
}

impl Witness {
    /// Leaves it in the attempt's folder. A disk that is full has no room for it: then the supervisor's word is all there is.
    fn leave_exit(&self, exit: ExitRecord) {
        let (asked, seconds) = (self.asked.0.load(Ordering::SeqCst), self.began.elapsed().as_secs_f64());
        if let Some(logs) = &self.logs {
            let _ = evidence::leave_evidence(logs, &Evidence { exit, asked, seconds });
        }
    }
}

/// Does what the supervisor says, until it is gone.
fn follow_control(lines: BufReader<UnixStream>, leader: i32, grace: Duration, asked: Asked) {
    thread::spawn(move || {
        for line in lines.lines() {
            let Ok(line) = line else { break };
            asked.note_leader(leader);
            match line.split_once(' ') {
                Some(("signal", number)) => forward(leader, number),
                Some(("end", seconds)) => {
                    let grace = seconds.parse().map_or(grace, Duration::from_secs);
                    tree::end_tree(own_pid(), Some(leader), &[], grace);
                }
                _ => {}
            }
        }
        asked.note_leader(leader);
        tree::end_tree(own_pid(), Some(leader), &[], grace);
        // The main thread reaps and exits; if it cannot, because the command is unkillable, this one does.
        thread::sleep(Duration::from_secs(1));
        wake_guardian();
        std::process::exit(1);
    });
}

/// A guardian that is stopped would not see this process end, and stay behind itself.
fn wake_guardian() {
    let _ = kill(getppid(), Signal::SIGCONT);
}

fn forward(leader: i32, number: &str) {
    let Some(signal) = number.parse::<i32>().ok().and_then(|number| Signal::try_from(number).ok()) else { return };
    // A group that is gone has had its end reported.
    let _ = killpg(Pid::from_raw(leader), signal);
}

/// Waits for all children, adopted ones too; once the command is gone, what it left is ended.
fn reap_children(control: &mut UnixStream, leader: i32, grace: Duration, witness: &Witness) {
    let mut ended = None;
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid.as_raw() == leader => {
                witness.leave_exit(ExitRecord { code: Some(code), signal: None });
                ended = Some(format!("exited {code}"));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid.as_raw() == leader => {
                witness.leave_exit(ExitRecord { code: None, signal: Some(signal as i32) });
                ended = Some(format!("signalled {}", signal as i32));
            }
            Ok(_) | Err(Errno::EINTR) => continue,
            // No child is left.
            Err(_) => break,
        }
        // Descendants that are already being ended, or orphans that run on: nothing outlives its command.
        thread::spawn(move || tree::end_tree(own_pid(), Some(leader), &[], grace.min(AFTER_THE_COMMAND)));
    }
    // Said last, so that whoever hears it finds no process of this command.
    say_line(control, &ended.unwrap_or_else(|| "exited 1".to_owned()));
}

pub(super) fn own_pid() -> i32 {
    std::process::id().cast_signed()
}
