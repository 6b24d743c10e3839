//! [`Prediction`]: what an estimate says of the job that is watched, in the bytes that NVML shows: context included.

use std::sync::{Arc, OnceLock};

/// What a process of the job should need.
#[derive(Clone, Debug, Default)]
pub struct Prediction {
    /// What the job is called.
    pub job: String,
    /// The peak of one process.
    pub peak_bytes: u64,
    /// The least and the most that the peak may be.
    pub range: (u64, u64),
    /// The phases in order.
    pub phases: Vec<PredictedPhase>,
    /// Key and value that would lower the peak most cheaply; set once it has been found.
    pub advice: Arc<OnceLock<String>>,
}

/// A phase and the memory that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredictedPhase {
    pub name: String,
    /// The most that is allocated, with the least context.
    pub low: u64,
    /// The most that is reserved, with the largest context.
    pub high: u64,
}

impl Prediction {
    /// Measured peak over predicted peak, less one.
    pub fn error_ratio(&self, peak: u64) -> Option<f64> {
        (self.peak_bytes > 0).then(|| peak as f64 / self.peak_bytes as f64 - 1.0)
    }

    /// The first phase whose band holds `bytes`.
    pub fn phase_of(&self, bytes: u64) -> Option<&PredictedPhase> {
        self.phases.iter().find(|phase| (phase.low..=phase.high).contains(&bytes))
    }
}
