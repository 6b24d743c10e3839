//! Exit codes, all of them.

use std::process::ExitCode;

/// What scripts are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done; the job fits (also when tight); the traces are equal.
    Done = 0,
    /// The job does not fit, of several not one does; the traces differ; the replay ran out of memory.
    No = 1,
    /// Wrong usage, or input that cannot be read.
    Usage = 2,
}

/// The codes for `--help`.
pub const HELP: &str = "Exit codes:
  0  done: it fits (also when tight), or traces are equal
  1  it does not fit, or traces differ
  2  wrong usage, or input that cannot be read";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
