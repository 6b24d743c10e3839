//! The guardian: the parent of the keeper, in case supervisor and keeper die at once. It inherits what they leave, ends it, and
//! writes what it still says into the logs. It bears a name of its own, so that `killall tonnage` leaves it.
//!
//! ```text
//! supervisor -> guardian -> keeper -> command -> ...
//! ```
//! Each adopts the orphans of the next. Guardian and keeper share the socket to the supervisor; only the keeper reads it.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::keeper::{hold_out, own_pid};
use super::tree;
use crate::os::{OWN_PROGRAM, is_child_running, wake_with_parents_death};

/// What it is called in lists of processes.
pub(super) const NAME: &str = "run-guardian";
/// What of a dead supervisor's output is written at most: the last words of a job, not another log.
const MOST_BYTES: usize = 64 << 20;
/// How long output is waited for when all processes are gone.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How often a keeper that somebody stopped is woken.
const WAKE: Duration = Duration::from_secs(1);

/// Starts the keeper, and ends what it leaves; `logs` is the attempt's folder.
pub fn guard_keeper(grace: Duration, logs: Option<PathBuf>) -> ExitCode {
    hold_out(NAME);
    let Ok(control) = std::io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let mut command = Command::new(OWN_PROGRAM);
    command.arg0("tonnage").arg("keep").arg(grace.as_secs().to_string());
    wake_with_parents_death(&mut command);
    match command.spawn() {
        Ok(keeper) => {
            let control = Arc::new(control);
            keep_awake(keeper.id().cast_signed());
            let written = logs.and_then(|logs| take_over(Arc::clone(&control), &logs));
            wait_for(&keeper);
            tree::end_tree(own_pid(), None, &[], grace);
            // A supervisor that lives writes the output itself, and waits for this process.
            if let Some(written) = written.filter(|_| has_hung_up(&control, PollTimeout::ZERO)) {
                // One message for each stream that was taken over.
                while written.recv_timeout(LAST_WORDS).is_ok() {}
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = File::from(control).write_all(format!("failed {error}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}

/// A keeper that is stopped (SIGSTOP) ends nothing, not even when the supervisor is dead: it is woken as long as it lives.
fn keep_awake(keeper: i32) {
    thread::spawn(move || {
        while is_child_running(keeper) {
            let _ = kill(Pid::from_raw(keeper), Signal::SIGCONT);
            thread::sleep(WAKE);
        }
    });
}

/// Until the keeper is gone; orphans that end meanwhile are buried.
fn wait_for(keeper: &Child) {
    let keeper = keeper.id().cast_signed();
    loop {
        match waitpid(None, None) {
            Ok(status) if status.pid().is_some_and(|pid| pid.as_raw() == keeper) => return,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

/// Holds the reading ends of the command's output, and writes what comes into its logs once the supervisor does not. Without
/// it, a job that saves its state within the grace would die of SIGPIPE when it says so.
fn take_over(control: Arc<OwnedFd>, logs: &Path) -> Option<Receiver<()>> {
    // A pipe opened by the name of its writing end is opened for reading.
    let stdout = File::open("/proc/self/fd/1").ok()?;
    let stderr = File::open("/proc/self/fd/2").ok()?;
    let nowhere = OpenOptions::new().write(true).open("/dev/null").ok()?;
    // The ends of the pipes must be seen when the command's processes are gone.
    nix::unistd::dup2_stdout(&nowhere).ok()?;
    nix::unistd::dup2_stderr(&nowhere).ok()?;
    let (sender, written) = channel();
    let streams = [(stdout, logs.join("stdout.log")), (stderr, logs.join("stderr.log"))];
    thread::spawn(move || {
        has_hung_up(&control, PollTimeout::NONE);
        for (pipe, log) in streams {
            let sender = sender.clone();
            thread::spawn(move || {
                append_pipe(pipe, &log);
                // The main thread may have waited long enough.
                let _ = sender.send(());
            });
        }
    });
    Some(written)
}

/// Whether the supervisor's end of the socket closes within `timeout`.
fn has_hung_up(control: &OwnedFd, timeout: PollTimeout) -> bool {
    loop {
        let mut fds = [PollFd::new(control.as_fd(), PollFlags::empty())];
        match poll(&mut fds, timeout) {
            Err(Errno::EINTR) => {}
            ready => return ready != Ok(0),
        }
    }
}

/// A log that cannot be written loses its end; the pipe is emptied all the same.
fn append_pipe(mut pipe: File, log: &Path) {
    let mut log = OpenOptions::new().append(true).create(true).mode(0o600).open(log).ok();
    let (mut chunk, mut bytes) = (vec![0; 64 << 10], 0);
    loop {
        match pipe.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => {
                bytes += count;
                if let Some(log) = log.as_mut().filter(|_| bytes <= MOST_BYTES) {
                    let _ = log.write_all(&chunk[..count]);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
