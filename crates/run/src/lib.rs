//! Starts training commands and keeps them alive: the only crate that starts processes.
//!
//! [`supervise`] runs what a [`store::RunFolder`] says: [`launch`] starts processes and sees their end, [`guard`] decides
//! what follows a failure, [`adapter`] speaks the flags of trainers and launchers, [`ledger`] shares a GPU among runs.
//!
//! Runs and rehearsals need Linux. On macOS the crate compiles, reads what is stored, and refuses to start anything
//! ([`os::check_supported`]); on Windows only [`home`] and [`RunError`] are there.

// No library for others: a field whose name says all is not said again. What is documented says a unit, a range or a source.
#![allow(missing_docs)]

#[cfg(unix)]
pub mod adapter;
pub mod bounded;
pub mod clock;
#[cfg(unix)]
pub mod corrections;
#[cfg(unix)]
pub mod guard;
pub mod home;
#[cfg(unix)]
mod interrupts;
#[cfg(unix)]
pub mod launch;
#[cfg(unix)]
pub mod ledger;
#[cfg(unix)]
pub mod log;
#[cfg(unix)]
pub mod os;
#[cfg(unix)]
pub mod private;
#[cfg(unix)]
pub mod rehearse;
#[cfg(unix)]
pub mod request;
#[cfg(unix)]
pub mod secrets;
#[cfg(unix)]
pub mod store;
#[cfg(unix)]
pub mod supervise;

use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a run could not be made, found or supervised.
#[derive(Debug, Error)]
pub enum RunError {
    /// A file or folder that cannot be used.
    #[error("{}: {}", path.display(), error_reason(source))]
    File {
        /// The file in question.
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file of this program, or one that it must change, that does not hold what it should.
    #[error("{}: {source}{hint}", path.display())]
    Damaged {
        /// The file in question.
        path: PathBuf,
        /// What is wrong in it.
        source: serde_json::Error,
        /// What to do, as the end of the sentence; or nothing.
        hint: &'static str,
    },
    /// A `[run]` table that cannot be read.
    #[error("{place}: [run]: {problem}")]
    Table {
        /// The job file and the line.
        place: String,
        /// What is wrong there.
        problem: String,
    },
    /// A name in braces that nothing fills in.
    #[error("`{{{name}}}`{problem}")]
    Template {
        /// What stands in the braces.
        name: String,
        /// What it lacks or might be, as the end of the sentence.
        problem: String,
    },
    /// A run that is not there, or not the only one.
    #[error("{0}")]
    NoSuchRun(String),
    /// Another supervisor has the run.
    #[error("run {0} is supervised already")]
    Supervised(String),
    /// A secret of the command that no record holds.
    #[error("the command's secret {0} is not recorded: set it as a variable {0}")]
    Secret(String),
    /// A folder from which Python would run what is not this program's.
    #[error(
        "{}: holds files that are not Tonnage's, or others may write there: Python would run them; remove it, or set \
         TONNAGE_HOME to a folder of your own",
        .0.display()
    )]
    Foreign(PathBuf),
    /// Another system than Linux.
    #[error(
        "runs are kept alive by Linux's /proc and prctl, which {} lacks: run on the machine with the GPU, or in a Linux \
         container; `tonnage estimate`, `fit`, `plan` and `doctor` work here",
        std::env::consts::OS
    )]
    NotLinux,
    /// The kernel does not tell of processes.
    #[error("/proc cannot be read: processes are told apart by it")]
    NoProc,
    /// A command that cannot be started.
    #[error("cannot start `{command}`: {reason}")]
    Start {
        /// Its first word.
        command: String,
        reason: String,
    },
}

impl RunError {
    /// `source` at `path`.
    pub fn file(path: &Path, source: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }

    /// What `path` holds is not what it should be.
    pub fn damaged(path: &Path, source: serde_json::Error) -> Self {
        Self::Damaged { path: path.to_owned(), source, hint: "" }
    }
}

/// In lowercase and without its number.
fn error_reason(error: &std::io::Error) -> String {
    error.to_string().split(" (os error").next().unwrap_or_default().to_lowercase()
}
