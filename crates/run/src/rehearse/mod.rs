//! Runs a training command over a phantom GPU and collects what it left: a folder with the embedded library and shim, an
//! environment that loads both, the command itself, and the records of its processes.

mod environment;
mod installed;
mod records;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use tonnage_core::gpu::Gpu;
use tonnage_core::rehearsal::{Rehearsal, shared_devices};

use environment::Environment;
pub use installed::write_library;

use installed::Installed;
use records::Folder;

use crate::interrupts::{self, End};

/// What to rehearse, and how far.
#[derive(Clone, Debug)]
pub struct Options {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// The GPU that the phantom stands for.
    pub gpu: Gpu,
    /// GPUs to answer for.
    pub asked: Vec<Gpu>,
    /// Phantom GPUs of the machine.
    pub gpus: u32,
    /// Stop after so many optimizer steps.
    pub steps: Option<u32>,
    /// Stop after so many seconds.
    pub seconds: Option<u32>,
    /// Stop once no peak has grown for so many optimizer steps; `None`: the script runs to its end.
    pub steady: Option<u32>,
    /// Tokens that `generate` makes; `None`: as many as it may.
    pub generate_length: Option<u32>,
    /// Seconds that a loop may do nothing but read device values.
    pub patience: u32,
    /// Hand-written routing sends tokens to the same experts, as many as it can, instead of to all alike.
    pub worst_experts: bool,
    /// Values of device tensors are followed.
    pub values: bool,
    /// Data loaders give the longest rows in every other batch.
    pub longest: bool,
    /// Tokens of every row that a data loader gives; `None`: as they are.
    pub row_length: Option<u32>,
    /// Sends what the command prints to stderr, because stdout is for a document.
    pub stdout_to_stderr: bool,
}

/// Why a command was not rehearsed.
#[derive(Debug, thiserror::Error)]
pub enum RehearseError {
    /// This program carries no library for this system.
    #[error("the phantom GPU is a Linux library; this is another system")]
    NotLinux,
    /// A folder or file could not be made or read.
    #[error("{path}: {error}")]
    File { path: PathBuf, error: io::Error },
    /// The command could not be started.
    #[error("`{command}` cannot be started: {error}")]
    Start {
        /// Its first word.
        command: String,
        error: io::Error,
    },
    /// This process was asked to end; the command has ended.
    #[error("ended by {name}")]
    Interrupted {
        /// The signal's number.
        signal: i32,
        name: &'static str,
    },
    /// A record is not readable.
    #[error("{path}: {problem}")]
    Record {
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl RehearseError {
    fn file(path: impl Into<PathBuf>, error: io::Error) -> Self {
        Self::File { path: path.into(), error }
    }
}

/// What ended a rehearsal: a signal that this process got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedBy {
    /// As the system numbers it, from 1.
    pub signal: i32,
    /// As in `SIGINT`.
    pub name: &'static str,
}

impl Rehearsed {
    /// The rehearsal, if nobody ended it early.
    ///
    /// # Errors
    /// When a signal did.
    pub fn whole(self) -> Result<Self, RehearseError> {
        match self.ended_by {
            None => Ok(self),
            Some(EndedBy { signal, name }) => Err(RehearseError::Interrupted { signal, name }),
        }
    }
}

/// A rehearsal, and its files for as long as it lives.
#[derive(Debug)]
pub struct Rehearsed {
    /// What was seen.
    pub rehearsal: Rehearsal,
    /// The file of each recording, beside `rehearsal.seen`.
    pub traces: Vec<Option<PathBuf>>,
    /// The signal by which this process was asked to end, and the command with it.
    pub ended_by: Option<EndedBy>,
    _folder: Folder,
}

/// Rehearses.
///
/// # Errors
/// When it cannot be set up, started or read; not when the command fails or a signal ends it.
pub fn rehearse_command(options: &Options) -> Result<Rehearsed, RehearseError> {
    rehearse_with(options, &|name| std::env::var_os(name))
}

/// Rehearses, `inherited` being the environment's variables that the command's are made from.
///
/// # Errors
/// As of [`rehearse_command`].
pub fn rehearse_with(
    options: &Options,
    inherited: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Rehearsed, RehearseError> {
    let folder = Folder::make()?;
    let installed = Installed::find_or_make(folder.path())?;
    let environment = Environment { options, installed: &installed, records: folder.path() };
    let started = Instant::now();
    let end = run_command(options, &environment, inherited, &|| folder.is_being_written())?;
    let (processes, seen, traces) = folder.read_records()?;
    let mut used = folder.driver_uses()?;
    let shared = shared_devices(&used.iter().flat_map(|process| process.devices.clone()).collect::<Vec<_>>());
    used.retain(|one| processes.iter().all(|process| process.pid != one.pid));
    let ended_by = match end {
        End::Exited(_) => None,
        End::Interrupted(signal) => Some(EndedBy { signal: signal as i32, name: signal.as_str() }),
    };
    let rehearsal = Rehearsal {
        gpu: options.gpu.clone(),
        asked: options.asked.clone(),
        gpus: options.gpus,
        unrecorded: used,
        shared,
        processes,
        seen,
        exit_code: match end {
            End::Exited(status) => exit_code(status),
            End::Interrupted(_) => None,
        },
        wall_seconds: started.elapsed().as_secs_f64(),
    };
    Ok(Rehearsed { rehearsal, traces, ended_by, _folder: folder })
}

fn run_command(
    options: &Options,
    environment: &Environment<'_>,
    inherited: &dyn Fn(&str) -> Option<OsString>,
    is_unfinished: &dyn Fn() -> bool,
) -> Result<End, RehearseError> {
    let [program, arguments @ ..] = options.command.as_slice() else {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "no command");
        return Err(RehearseError::Start { command: String::new(), error });
    };
    let mut command = Command::new(program);
    command.args(arguments).envs(environment.variables(inherited));
    if options.stdout_to_stderr {
        command.stdout(Stdio::from(io::stderr()));
    }
    let not_started = |error| RehearseError::Start { command: program.to_string_lossy().into_owned(), error };
    interrupts::run_command(&mut command, is_unfinished).map_err(not_started)
}

/// The exit code as a shell tells it: 128 and the number of a signal that ended the command.
fn exit_code(status: ExitStatus) -> Option<i32> {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        status.code().or_else(|| status.signal().map(|signal| 128 + signal))
    }
    #[cfg(not(unix))]
    status.code()
}
