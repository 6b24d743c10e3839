//! Exit codes, all of them.

use std::process::ExitCode;

/// What scripts are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done; the job fits (also when tight); the traces are equal; the run succeeded.
    Done,
    /// The job does not fit, of several not one does; the traces differ; the replay ran out of memory; the run failed, was
    /// stopped or refused.
    No,
    /// Wrong usage, or input that cannot be read.
    Usage,
    /// A rehearsed script waits for a value that only a real GPU computes.
    Waiting,
    /// A command that was rehearsed failed for reasons of its own: its code, unchanged.
    Command(u8),
}

/// The codes for `--help`.
pub const HELP: &str = "Exit codes:
  0  done: it fits (also when tight), traces are equal, or the run succeeded
  1  it does not fit, traces differ, or the run failed, was stopped or refused
  2  wrong usage, or input that cannot be read
  3  a rehearsed script waits for a value that only a real GPU computes
Where a rehearsed command fails for reasons of its own, its exit code comes through.
`run` answers 1 and says the command's code.";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::No => 1,
            Exit::Usage => 2,
            Exit::Waiting => 3,
            Exit::Command(code) => code,
        })
    }
}
