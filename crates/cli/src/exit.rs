//! Exit codes, all of them.

use std::process::ExitCode;

use tonnage_core::estimate::Fit;

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
    /// It is not known whether a rehearsed script fits: it waits for a value that only a real GPU computes, or parts of its
    /// model never ran for want of one.
    Waiting,
    /// A command that was rehearsed failed for reasons of its own: its code, unchanged.
    Command(u8),
}

/// A verdict beside `does not fit` on which a command fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FailOn {
    /// Less room than the margin and what is not known
    Tight,
}

impl FailOn {
    /// Whether a job with this verdict passes where `asked` says what else fails.
    pub fn passes(asked: Option<Self>, fit: Fit) -> bool {
        match (fit, asked) {
            (Fit::Fits, _) | (Fit::Tight | Fit::NotKnown, None) => true,
            (Fit::Tight | Fit::NotKnown, Some(Self::Tight)) | (Fit::DoesNotFit, _) => false,
        }
    }
}

/// The codes of `estimate`.
pub const ESTIMATE: &str = "Exit codes:
  0  it fits, or is tight (see --fail-on); with --compare, one variant does
  1  it does not fit; with --compare, no variant does
     (without a GPU: 0 where a GPU of the catalog carries it, 1 where none does)
  2  wrong usage, or input that cannot be read";
/// The codes of `check`.
pub const CHECK: &str = "Exit codes:
  0  it takes no more than baseline and tolerance allow, and fits (also when tight, see --fail-on)
  1  it takes more, or does not fit
  2  wrong usage, input that cannot be read, or a job that the baseline does not have";
/// The codes of `fit`.
pub const FIT: &str = "Exit codes:
  0  something fits, or is tight (see --fail-on)
  1  nothing of the table fits
  2  wrong usage, or input that cannot be read";
/// The codes of `plan`.
pub const PLAN: &str = "Exit codes:
  0  the job fits or is tight (see --fail-on), or a way was found
  1  no way was found
  2  wrong usage, or input that cannot be read";
/// The codes of `cost`.
pub const COST: &str = "Exit codes:
  0  all configurations fit, or are tight
  1  one does not fit
  2  wrong usage, or input that cannot be read";
/// The codes of `suite plan`.
pub const SUITE_PLAN: &str = "Exit codes:
  0  every configuration fits, or is tight
  1  one does not fit, or is no job
  2  wrong usage, or a suite that cannot be read or does not hold its constraints";
/// The codes of `suite run` and `suite retry`.
#[cfg(unix)]
pub const SUITE_RUN: &str = "Exit codes:
  0  every run of the suite has succeeded
  1  a run failed, or some are missing still
  2  wrong usage, a suite that cannot be read, or one that is run already";
/// The codes of `suite submit`.
#[cfg(unix)]
pub const SUITE_SUBMIT: &str = "Exit codes:
  0  SLURM has all that was missing, or would take it
  1  SLURM refuses it or does not answer, or some runs have failed or fit no GPU
  2  wrong usage, a suite that cannot be read, or one that another process has";
/// The codes of commands that answer without a verdict.
pub const ANSWER: &str = "Exit codes:
  0  answered
  2  wrong usage, or input that cannot be read";
/// The codes of `report`.
pub const REPORT: &str = "Exit codes:
  0  the report was made, whatever it says; with --fail-on-check, no check forbids a conclusion
  1  with --fail-on-check, a check forbids a conclusion
  2  wrong usage, or nothing could be read";
/// The codes of `trace compare` and `trace replay`.
pub const TRACE: &str = "Exit codes:
  0  the traces are equal, or the replay goes through
  1  the traces differ, or the replay runs out of memory
  2  wrong usage, or input that cannot be read";
/// The codes of `rehearse`.
pub const REHEARSE: &str = "Exit codes:
  0  it fits (also when tight)
  1  it does not fit
  2  wrong usage, or nothing could be rehearsed
  3  not known: the script waits for a value that only a real GPU computes, or parts of its model got no forward pass
Where the command fails for reasons of its own, its exit code comes through.";
/// The codes of `run` and `probe`.
pub const RUN: &str = "Exit codes:
  0  the run succeeded
  1  it failed, was stopped, or was refused (see --fail-on): the command's own code is said
  2  wrong usage, or input that cannot be read";

/// The codes of `train`.
#[cfg(unix)]
pub const TRAIN: &str = "Exit codes:
  0  trained to its last step; with --dry-run, it could begin; with --rehearse, it fits
  1  it failed, was stopped, or was refused; with --rehearse, it does not fit
  2  wrong usage, no PyTorch, or input that cannot be read";
/// The codes of `generate`.
#[cfg(unix)]
pub const GENERATE: &str = "Exit codes:
  0  generated
  2  wrong usage, no PyTorch, or a model that cannot be read";

/// All codes, for `tonnage --help`; docs/exit-codes.md has them by command.
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
