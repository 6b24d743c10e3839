//! `tonnage suite`: from one job to an experiment; a command is a file.

mod plan;
mod source;

use clap::Subcommand;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Plans and runs an experiment: configurations, seeds, groups
#[derive(Subcommand)]
pub enum SuiteCommand {
    Plan(plan::PlanArgs),
}

impl SuiteCommand {
    /// Does what was asked.
    ///
    /// # Errors
    /// When it cannot be done.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        match self {
            Self::Plan(args) => args.run(terminal),
        }
    }
}
