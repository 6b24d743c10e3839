//! `tonnage guardian`, `keep` and `begin`: the processes between a supervisor and its command; started by `run`, not by people.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tonnage_run::launch::{guardian, keeper};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// The attempt's folder, which the command is told too.
fn attempt_folder() -> Option<PathBuf> {
    std::env::var_os("TONNAGE_ATTEMPT_DIR").map(PathBuf::from)
}

/// Ends what a keeper leaves that dies together with its supervisor
#[derive(Args)]
pub struct GuardianArgs {
    /// Seconds between asking and ending
    grace: u64,
}

impl GuardianArgs {
    /// Runs it to its end.
    ///
    /// # Errors
    /// Never; what goes wrong is told to the supervisor.
    pub fn run(self, _terminal: &Terminal) -> Result<Exit, Failure> {
        guardian::guard_keeper(Duration::from_secs(self.grace), attempt_folder());
        Ok(Exit::Done)
    }
}

/// Keeps a command's processes for its supervisor
#[derive(Args)]
pub struct KeepArgs {
    /// Seconds between asking and ending
    grace: u64,
}

impl KeepArgs {
    /// Runs it to its end.
    ///
    /// # Errors
    /// Never; what goes wrong is told to the supervisor.
    pub fn run(self, _terminal: &Terminal) -> Result<Exit, Failure> {
        keeper::keep_command(Duration::from_secs(self.grace), attempt_folder());
        Ok(Exit::Done)
    }
}

/// Becomes a command that ends with its keeper
#[derive(Args)]
pub struct BeginArgs {
    /// The keeper's process
    keeper: i32,

    /// The command
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl BeginArgs {
    /// Returns only where the command cannot be started.
    ///
    /// # Errors
    /// Never; what goes wrong is told to the keeper.
    pub fn run(self, _terminal: &Terminal) -> Result<Exit, Failure> {
        keeper::begin_command(self.keeper, &self.command);
        Ok(Exit::Command(127))
    }
}
