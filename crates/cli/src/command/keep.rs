//! `tonnage keep`: the process between a supervisor and its command; started by `run`, not by people.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use tonnage_run::launch::keeper::keep;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Keeps a command's processes for its supervisor
#[derive(Args)]
pub struct KeepArgs {
    /// Seconds between asking and ending
    grace: u64,

    /// The command
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl KeepArgs {
    /// Runs it to its end.
    ///
    /// # Errors
    /// Never; what goes wrong is told to the supervisor.
    pub fn run(self, _terminal: &Terminal) -> Result<Exit, Failure> {
        keep(&self.command, Duration::from_secs(self.grace));
        Ok(Exit::Done)
    }
}
