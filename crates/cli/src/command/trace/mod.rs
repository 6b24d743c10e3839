//! `tonnage trace`: every allocation and free of a job, predicted or recorded.

mod compare;
mod recorded;
mod replay;
mod write;

use clap::Subcommand;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Writes, replays and compares traces of allocations and frees
#[derive(Subcommand)]
pub enum TraceCommand {
    Write(Box<write::WriteArgs>),
    Replay(replay::ReplayArgs),
    Compare(Box<compare::CompareArgs>),
}

impl TraceCommand {
    /// Does what was asked.
    ///
    /// # Errors
    /// When it cannot be done.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        match self {
            Self::Write(args) => args.run(terminal),
            Self::Replay(args) => args.run(terminal),
            Self::Compare(args) => args.run(terminal),
        }
    }
}
