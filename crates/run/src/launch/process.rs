//! [`Process`]: a command under a keeper, as the supervisor holds it.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use tonnage_core::record::ExitRecord;

use super::output::{Output, Screen};
use crate::RunError;

/// What is to be started.
pub struct Start<'a> {
    /// Words of the command; no shell sees them.
    pub argv: &'a [String],
    /// Variables on top of the environment.
    pub environment: &'a [(String, String)],
    /// Where it runs.
    pub folder: &'a Path,
    /// Where its logs go.
    pub logs: PathBuf,
    /// What it is given to end in.
    pub grace: Duration,
    /// Where its lines are shown.
    pub screen: Screen,
    /// Who is told, as which node and attempt.
    pub notices: Sender<Notice>,
    /// The node.
    pub node: usize,
}

/// What is heard of a process.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// It is there.
    Started {
        /// The node.
        node: usize,
        /// Its process.
        pid: u32,
    },
    /// It could not be started.
    NotStarted {
        /// The node.
        node: usize,
        /// Why.
        reason: String,
    },
    /// It and all it started are gone.
    Ended {
        /// The node.
        node: usize,
        /// How.
        exit: ExitRecord,
    },
    /// Somebody asks the run to end, by a signal.
    Signal(i32),
}

/// A running command.
pub struct Process {
    keeper: Child,
    control: UnixStream,
    /// What it writes.
    pub output: Output,
}

impl Process {
    /// Starts a command.
    ///
    /// # Errors
    /// When no keeper can be started or no log written.
    pub fn start(start: Start<'_>) -> Result<Self, RunError> {
        let refused = |error: std::io::Error| RunError::Start {
            command: start.argv.first().cloned().unwrap_or_default(),
            reason: error.to_string().to_lowercase(),
        };
        let program = std::env::current_exe().map_err(refused)?;
        let (control, theirs) = UnixStream::pair().map_err(refused)?;
        let mut command = Command::new(program);
        command.arg("keep").arg(start.grace.as_secs().to_string()).arg("--").args(start.argv);
        command.envs(start.environment.iter().map(|(name, value)| (name, value))).current_dir(start.folder);
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::piped()).stderr(Stdio::piped());
        // In a group of its own, a Ctrl-C of the terminal reaches the supervisor alone, which forwards it.
        let mut keeper = command.process_group(0).spawn().map_err(refused)?;
        drop(command);
        let pipes = (keeper.stdout.take(), keeper.stderr.take());
        let output = Output::follow(pipes, &start.logs, start.screen)?;
        hear(control.try_clone().map_err(refused)?, start.node, start.notices);
        Ok(Self { keeper, control, output })
    }

    /// Sends a signal to the command's group.
    pub fn signal(&mut self, signal: i32) {
        // A keeper that is gone has been heard of.
        let _ = self.control.write_all(format!("signal {signal}\n").as_bytes());
    }

    /// Ends the command and all it started, after `grace`.
    pub fn end(&mut self, grace: Duration) {
        let _ = self.control.write_all(format!("end {}\n", grace.as_secs()).as_bytes());
    }

    /// The keeper's process.
    pub fn keeper_pid(&self) -> i32 {
        self.keeper.id().cast_signed()
    }

    /// Waits for the keeper and for what is left of the output.
    pub fn finish(mut self) -> Output {
        let _ = self.keeper.wait();
        self.output.finish();
        self.output
    }
}

/// Passes on what a keeper says. One that falls silent before it said the end was killed itself.
fn hear(control: UnixStream, node: usize, notices: Sender<Notice>) {
    thread::spawn(move || {
        let mut said_the_end = false;
        for line in BufReader::new(control).lines().map_while(Result::ok) {
            let Some(notice) = notice(node, &line) else { continue };
            said_the_end |= !matches!(notice, Notice::Started { .. });
            // The supervisor is ending when nobody listens.
            let _ = notices.send(notice);
        }
        if !said_the_end {
            let _ = notices.send(Notice::Ended { node, exit: ExitRecord { code: None, signal: Some(9) } });
        }
    });
}

fn notice(node: usize, line: &str) -> Option<Notice> {
    let (word, rest) = line.split_once(' ')?;
    match word {
        "started" => Some(Notice::Started { node, pid: rest.parse().ok()? }),
        "failed" => Some(Notice::NotStarted { node, reason: rest.to_lowercase() }),
        "exited" => Some(Notice::Ended { node, exit: ExitRecord { code: rest.parse().ok(), signal: None } }),
        "signalled" => Some(Notice::Ended { node, exit: ExitRecord { code: None, signal: rest.parse().ok() } }),
        _ => None,
    }
}
