//! The guard: what follows a failure. It is classified ([`classify_failure`]), its numbers correct the estimate ([`refit_estimate`]), and
//! the next attempt is computed (`ladder`): the largest micro-batch predicted to fit at exactly the same effective
//! batch, then remedies; or a wait, or the end with its reason.

mod batches;
mod causes;
pub mod checkpoint;
mod classify;
mod gpu;
mod gpu_memory;
mod ladder;
mod preflight;
mod refit;
mod scaled;

pub use batches::{Batches, Choice};
pub use classify::{ExitEvidence, classify_failure};
pub use gpu::{GpuNow, LookAtGpu};
pub use ladder::{AttemptPlan, Guard, Next};
pub use preflight::Preflight;
pub use refit::refit_estimate;

use tonnage_core::job::{JobSource, JobSpec};
use tonnage_core::record::CorrectionRecord;

/// A job that the guard can change and estimate.
pub struct Job<'a> {
    /// As it was asked for.
    pub spec: JobSpec,
    /// What it is made of, to be changed.
    pub source: &'a JobSource,
}

/// What a GPU has for the run's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes of the GPU, as PyTorch sees them.
    pub usable_bytes: u64,
    /// Of these, promised to other runs.
    pub taken_bytes: u64,
    /// In use by processes now, as the driver says; whoever was promised memory may use it already.
    pub used_bytes: u64,
    /// What observations add to estimates.
    pub correction: CorrectionRecord,
    /// By how much less than calculated the job, as it was asked for, was seen to need.
    pub less_bytes: u64,
}

impl Room {
    /// What estimates may come to: what is there, less the others' and the correction.
    pub fn for_estimates(&self) -> u64 {
        self.available().saturating_add(self.less_bytes).saturating_sub(self.correction.offset_bytes)
    }

    /// The same room, if nothing had been observed of the job's need.
    pub(crate) fn without_correction(&self) -> Self {
        let correction = CorrectionRecord { offset_bytes: 0, ..self.correction.clone() };
        Self { correction, ..self.clone() }
    }

    /// What is there, less the others'.
    pub fn available(&self) -> u64 {
        self.usable().saturating_sub(self.taken_bytes.max(self.used_bytes))
    }

    /// What is there.
    pub fn usable(&self) -> u64 {
        self.correction.usable_bytes.unwrap_or(self.usable_bytes)
    }
}
