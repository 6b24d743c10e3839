//! [`Runner`]: a suite's runs on this machine. It decides what is started next; every run lives under a supervisor of its own, which
//! outlives this process, so that a death here loses nothing: started again it takes up those that live, and starts what is missing.

mod active;
mod admit;
mod going;
mod pause;
mod signals;
mod system;

use std::path::PathBuf;
use std::time::Duration;

use tonnage_core::record::{Outcome, RunRecord};
use tonnage_run::RunError;
use tonnage_run::secrets::Secrets;
use tonnage_run::store::Store;

use crate::folder::SuiteFolder;
use crate::journal::State;
use crate::peaks::Peaks;
use crate::plan::{Plan, PlannedRun};
use going::Going;
pub use system::{LookAtGpus, Readings};

/// What is known of a run when its record is made.
pub struct Place<'a> {
    /// The GPUs that it is put on.
    pub gpus: &'a [String],
    /// What earlier runs of its configuration were measured to take.
    pub peaks: &'a Peaks,
}

/// Makes the record of a run, and the secrets of its command that the record does not hold.
pub type MakeRecord<'a> = dyn Fn(&PlannedRun, &Place<'_>) -> Result<(RunRecord, Secrets), String> + 'a;

/// How a suite is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// GPUs of this machine, by the names that CUDA_VISIBLE_DEVICES takes; none where it has none.
    pub gpus: Vec<String>,
    /// Runs at once, at most.
    pub slots: usize,
    /// Between two starts.
    pub stagger: Duration,
    /// Equal failures at the start after which the suite pauses; 0 never.
    pub pause_after: usize,
    /// Whether the first failure ends it.
    pub fail_fast: bool,
    /// Whether runs that were started on another machine count as dead.
    pub take_over: bool,
    /// Between two looks at the GPUs.
    pub sample_every: Duration,
    /// Path of this program's own binary.
    pub program: PathBuf,
}

/// A suite that is run.
pub struct Runner<'a> {
    /// What is to be run.
    pub plan: &'a Plan,
    /// Where what happens is kept.
    pub folder: &'a SuiteFolder,
    /// Where runs are kept.
    pub store: &'a Store,
    pub options: Options,
    /// What a run is.
    pub record: &'a MakeRecord<'a>,
    /// The file's text, for the report, without secrets.
    pub text: String,
    /// Whether runs of one seed see the same data.
    pub shares_data_order: Option<bool>,
    /// What the GPUs say of themselves.
    pub look: &'a LookAtGpus<'a>,
    /// Says something to whoever watches.
    pub say: &'a dyn Fn(&str),
}

/// What a suite came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Runs that succeeded.
    pub succeeded: usize,
    /// That failed, or were refused.
    pub failed: usize,
    /// That are still to be done.
    pub missing: usize,
}

impl Runner<'_> {
    /// Runs what is missing, until all is done, nothing more may be started, or somebody asks it to end.
    ///
    /// # Errors
    /// When the suite's folder or a ledger cannot be used. Runs that were started go on under their supervisors.
    pub fn run(&self) -> Result<Outcomes, RunError> {
        let signals = signals::take_signals();
        let mut going = Going::begin_runner(self)?;
        going.run(&signals)?;
        Ok(self.outcomes(&going.state))
    }

    fn outcomes(&self, state: &State) -> Outcomes {
        use crate::journal::Where;
        let mut outcomes = Outcomes::default();
        for run in &self.plan.runs {
            match state.where_is(&run.id) {
                Where::Ended(end) if end.outcome == Outcome::Succeeded => outcomes.succeeded += 1,
                Where::Ended(_) => outcomes.failed += 1,
                _ => outcomes.missing += 1,
            }
        }
        outcomes
    }
}

/// An outcome in a word.
pub const fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::Stopped => "stopped",
        Outcome::Refused => "refused",
    }
}
