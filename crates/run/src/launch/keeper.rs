//! The keeper: a small process between supervisor and command, the parent of everything that the command starts.
//!
//! Its stdin is a socket to the supervisor. Downwards come `signal N` and `end N` (seconds of grace); when the socket closes, the supervisor is dead
//! and everything is ended. Upwards go `started PID`, `failed WHY` and `exited CODE` or `signalled N`.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::tree;

/// What the keeper says with its own exit code when the command cannot be started.
const NOT_STARTED: u8 = 127;

/// Runs `argv` until it and all it started are gone. `grace` is given to what must be ended.
pub fn keep(argv: &[OsString], grace: Duration) -> ExitCode {
    // The supervisor blocks signals for its own thread that takes them; the command must not inherit that.
    let _ = SigSet::empty().thread_set_mask();
    // Without it, grandchildren go to init and are only ended as members of the command's group.
    let _ = prctl::set_child_subreaper(true);
    let Ok(stdin) = std::io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::from(NOT_STARTED) };
    let mut control = UnixStream::from(stdin);
    let Some((program, arguments)) = argv.split_first() else { return ExitCode::from(NOT_STARTED) };
    match Command::new(program).args(arguments).stdin(Stdio::null()).process_group(0).spawn() {
        Ok(child) => {
            let pid = child.id().cast_signed();
            say(&mut control, &format!("started {pid}"));
            listen(&control, pid, grace);
            reap(&mut control, pid, grace);
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&mut control, &format!("failed {error}"));
            ExitCode::from(NOT_STARTED)
        }
    }
}

/// A supervisor that is gone hears nothing; that is seen by the listener.
fn say(control: &mut UnixStream, line: &str) {
    let _ = control.write_all(format!("{line}\n").as_bytes());
}

/// Does what the supervisor says, until it is gone.
fn listen(control: &UnixStream, leader: i32, grace: Duration) {
    let Ok(control) = control.try_clone() else { return };
    thread::spawn(move || {
        for line in BufReader::new(control).lines() {
            let Ok(line) = line else { break };
            match line.split_once(' ') {
                Some(("signal", number)) => forward(leader, number),
                Some(("end", seconds)) => {
                    let grace = seconds.parse().map_or(grace, Duration::from_secs);
                    tree::end_tree(own_pid(), Some(leader), &[], grace);
                }
                _ => {}
            }
        }
        tree::end_tree(own_pid(), Some(leader), &[], grace);
        // The main thread reaps and exits; if it cannot, because the command is unkillable, this one does.
        thread::sleep(Duration::from_secs(1));
        std::process::exit(1);
    });
}

fn forward(leader: i32, number: &str) {
    let Some(signal) = number.parse::<i32>().ok().and_then(|number| Signal::try_from(number).ok()) else { return };
    // A group that is gone has had its end reported.
    let _ = killpg(Pid::from_raw(leader), signal);
}

/// Waits for all children, adopted ones too; once the command is gone, what it left is ended.
fn reap(control: &mut UnixStream, leader: i32, grace: Duration) {
    let mut ended = None;
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid.as_raw() == leader => ended = Some(format!("exited {code}")),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid.as_raw() == leader => {
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
    say(control, &ended.unwrap_or_else(|| "exited 1".to_owned()));
}

/// How long the processes that a command leaves behind are waited for.
const AFTER_THE_COMMAND: Duration = Duration::from_secs(5);

fn own_pid() -> i32 {
    std::process::id().cast_signed()
}
