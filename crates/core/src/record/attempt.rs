//! [`AttemptRecord`]: one start of the command, with the batch it was given and what it was predicted to need.

use serde::{Deserialize, Serialize};

use crate::job::JobSpec;
use crate::plan::batch::Batch;
use crate::plan::fit::GpuVerdict;

/// One start of the command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptRecord {
    /// From 1, for each node.
    pub number: u32,
    /// Index into [`super::RunRecord::nodes`].
    pub node: usize,
    /// What is started, templates filled; no shell sees it.
    pub argv: Vec<String>,
    /// The variables that are set for it.
    pub environment: Vec<(String, String)>,
    /// The batch it was told.
    pub batch: Option<BatchRecord>,
    /// What differs from the job.
    pub changes: Vec<ChangeRecord>,
    /// What it is predicted to need.
    pub predicted: Option<PredictionRecord>,
    /// The checkpoint it goes on from.
    pub resume_from: Option<String>,
    /// Why it is made.
    pub reason: String,
}

/// A batch, and what it comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BatchRecord {
    /// Rows of a forward pass on one rank.
    pub micro_batch_size: u64,
    /// Passes per optimizer step.
    pub gradient_accumulation_steps: u64,
    /// For GRPO: micro-batches generated at once.
    pub steps_per_generation: Option<u64>,
    /// Ranks, one GPU each.
    pub world_size: u64,
    /// Rows per optimizer step over all ranks: the product of the above.
    pub effective_batch_size: u64,
}

impl BatchRecord {
    /// `batch` on the ranks of `job`.
    pub fn new(batch: &Batch, job: &JobSpec) -> Self {
        let world_size = job.parallel.world_size.max(1);
        Self {
            micro_batch_size: batch.micro_batch_size,
            gradient_accumulation_steps: batch.gradient_accumulation_steps,
            steps_per_generation: batch.steps_per_generation,
            world_size,
            effective_batch_size: batch.effective().saturating_mul(world_size),
        }
    }
}

/// A value that an attempt changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChangeRecord {
    /// The key of a job.
    pub key: String,
    /// Its new value.
    pub value: String,
    /// The remedy that asks for it.
    pub remedy: String,
    /// What it was predicted to save.
    pub saves_bytes: u64,
}

/// What an attempt is predicted to need on the fullest GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PredictionRecord {
    /// Calculated, context included.
    pub total_bytes: u64,
    /// With the correction of this run's observations.
    pub corrected_bytes: u64,
    /// What the GPU has for it.
    pub usable_bytes: u64,
    /// Peak of allocated bytes of a process.
    pub peak_allocated_bytes: u64,
    /// Peak of reserved bytes of a process.
    pub peak_reserved_bytes: u64,
    /// Processes on the GPU that the totals are of; 0 where a record does not say.
    pub processes: u64,
}

impl PredictionRecord {
    /// A verdict of `processes` on a GPU with `usable_bytes`, `offset_bytes` more than calculated.
    pub const fn new(verdict: &GpuVerdict, offset_bytes: u64, usable_bytes: u64, processes: u64) -> Self {
        Self {
            processes,
            total_bytes: verdict.total_bytes,
            corrected_bytes: verdict.total_bytes.saturating_add(offset_bytes),
            usable_bytes,
            peak_allocated_bytes: verdict.peak_allocated_bytes,
            peak_reserved_bytes: verdict.peak_reserved_bytes,
        }
    }
}
