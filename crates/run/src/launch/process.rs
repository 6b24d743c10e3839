//! [`Process`]: a command under its guardian and keeper, as the supervisor holds it.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tonnage_core::record::ExitRecord;

use super::output::{Output, Screen};
use super::tree::end_tree;
use super::{evidence, guardian};
use crate::RunError;
use crate::os::{OWN_PROGRAM, wake_with_parents_death};

/// How many guardians are started for one command at most.
const MOST_GUARDIANS: usize = 3;
/// How often a guardian that should end is woken.
const WAKE_POLL: Duration = Duration::from_millis(5);
/// How often orphans are looked for that hold the output.
const ORPHANS_POLL: Duration = Duration::from_millis(20);

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
    pub node: usize,
}

/// What is heard of a process.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// It is there.
    Started { node: usize, pid: u32, keeper: u32 },
    /// It could not be started.
    NotStarted { node: usize, reason: String },
    /// It and all it started are gone.
    Ended { node: usize, exit: ExitRecord },
    /// Somebody asks the run to end, by a signal.
    Signal(i32),
}

/// A running command.
pub struct Process {
    guardian: Child,
    keeper: Option<i32>,
    control: UnixStream,
    /// What it writes.
    pub output: Output,
}

impl Process {
    /// Starts a command.
    ///
    /// # Errors
    /// When no guardian can be started.
    pub fn start_guardian(start: Start<'_>) -> Result<Self, RunError> {
        let refused = |error: io::Error| RunError::Start {
            command: start.argv.first().cloned().unwrap_or_default(),
            reason: error.to_string().to_lowercase(),
        };
        evidence::forget_evidence(&start.logs);
        let (mut guardian, control) = told_guardian(&start).map_err(refused)?;
        let pipes = (guardian.stdout.take(), guardian.stderr.take());
        let output = Output::follow_pipes(pipes, &start.logs, start.screen);
        pass_on_notices(control.try_clone().map_err(refused)?, start.node, start.notices);
        Ok(Self { guardian, keeper: None, control, output })
    }

    /// Notes the keeper, once it is known.
    pub const fn kept_by(&mut self, keeper: u32) {
        self.keeper = Some(keeper.cast_signed());
    }

    /// Sends a signal to the command's group.
    pub fn send_signal(&mut self, signal: i32) {
        // A keeper that is gone has been heard of.
        let _ = self.control.write_all(format!("signal {signal}\n").as_bytes());
    }

    /// Ends the command and all it started, after `grace`.
    pub fn end_within(&mut self, grace: Duration) {
        let _ = self.control.write_all(format!("end {}\n", grace.as_secs()).as_bytes());
    }

    /// The process above all that the command started.
    pub fn root(&self) -> i32 {
        self.keeper.unwrap_or_else(|| self.guardian.id().cast_signed())
    }

    /// The processes that keep it: they are not the command's.
    pub fn keeper_pids(&self) -> impl Iterator<Item = i32> {
        std::iter::once(self.guardian.id().cast_signed()).chain(self.keeper)
    }

    /// Ends it without its keepers, which do not answer.
    pub fn end_from_above(&self) {
        let guardian = self.guardian.id().cast_signed();
        end_tree(guardian, None, &[], Duration::ZERO);
        // It is gone, or has nothing left to wait for.
        let _ = kill(Pid::from_raw(guardian), Signal::SIGKILL);
    }

    /// One that somebody stopped (SIGSTOP) hears nothing and ends nothing.
    pub fn wake_keepers(&self) {
        for pid in self.keeper_pids() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
        }
    }

    /// Waits for the guardian and for what is left of the output. As long as somebody may write, `end_orphans` is called again and
    /// again: a process whose parents die at one blow is nobody's child for a moment, and one look may miss it.
    pub fn finish_output(mut self, end_orphans: &dyn Fn()) -> Output {
        while matches!(self.guardian.try_wait(), Ok(None)) {
            self.wake_keepers();
            thread::sleep(WAKE_POLL);
        }
        while self.output.is_open() {
            thread::sleep(ORPHANS_POLL);
            if self.output.is_open() {
                end_orphans();
            }
        }
        self.output.finish_reading();
        self.output
    }
}

/// A guardian that has the command's words. One that somebody kills before it has them all has started nothing, so that another may.
fn told_guardian(start: &Start<'_>) -> io::Result<(Child, UnixStream)> {
    let words = format!("{}\n", serde_json::json!(start.argv));
    for _ in 1..MOST_GUARDIANS {
        let (mut guardian, mut control) = spawn_guardian(start)?;
        match control.write_all(words.as_bytes()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => guardian.wait()?,
            told => return told.map(|()| (guardian, control)),
        };
    }
    let (guardian, mut control) = spawn_guardian(start)?;
    control.write_all(words.as_bytes())?;
    Ok((guardian, control))
}

fn spawn_guardian(start: &Start<'_>) -> io::Result<(Child, UnixStream)> {
    let (control, theirs) = UnixStream::pair()?;
    let mut command = Command::new(OWN_PROGRAM);
    command.arg0(guardian::NAME).arg("guardian").arg(start.grace.as_secs().to_string());
    command.envs(start.environment.iter().map(|(name, value)| (name, value))).current_dir(start.folder);
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Until it has a keeper, nobody else would wake it.
    wake_with_parents_death(&mut command);
    // In a group of its own, a Ctrl-C of the terminal reaches the supervisor alone, which forwards it.
    let guardian = command.process_group(0).spawn()?;
    Ok((guardian, control))
}

/// Passes on what a keeper says. One that falls silent before it said the end was killed itself.
fn pass_on_notices(control: UnixStream, node: usize, notices: Sender<Notice>) {
    thread::spawn(move || {
        let mut said_the_end = false;
        for line in BufReader::new(control).lines().map_while(Result::ok) {
            let Some(notice) = parse_notice(node, &line) else { continue };
            said_the_end |= !matches!(notice, Notice::Started { .. });
            // The supervisor is ending when nobody listens.
            let _ = notices.send(notice);
        }
        if !said_the_end {
            let _ = notices.send(Notice::Ended { node, exit: ExitRecord { code: None, signal: Some(9) } });
        }
    });
}

fn parse_notice(node: usize, line: &str) -> Option<Notice> {
    let (word, rest) = line.split_once(' ')?;
    match word {
        "started" => {
            let (pid, keeper) = rest.split_once(' ')?;
            Some(Notice::Started { node, pid: pid.parse().ok()?, keeper: keeper.parse().ok()? })
        }
        "failed" => Some(Notice::NotStarted { node, reason: rest.to_lowercase() }),
        "exited" => Some(Notice::Ended { node, exit: ExitRecord { code: rest.parse().ok(), signal: None } }),
        "signalled" => Some(Notice::Ended { node, exit: ExitRecord { code: None, signal: rest.parse().ok() } }),
        _ => None,
    }
}
