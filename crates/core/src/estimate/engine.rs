//! A vLLM engine in the trainer's process: its share of the GPU beside what the trainer reserves, phase by phase.

use crate::alloc::{Peaks, PhasePeak};
use crate::job::keys;
use crate::job::{JobError, JobSpec, Rollout};
use crate::trace::{Allocation, Category, PhaseKind, Trace};
use crate::units::Bytes;

/// Bytes of an engine that is awake or asleep.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Engine {
    /// While it generates, and when it is loaded: weights, KV cache and activations, to its share of the GPU.
    pub awake_bytes: u64,
    /// While the policy trains: as much, unless it sleeps.
    pub asleep_bytes: u64,
    /// Where the figures come from.
    pub source: &'static str,
}

/// Models that are published in half precision, which vLLM's `dtype="auto"` keeps.
const BYTES_PER_WEIGHT: u64 = 2;

impl Engine {
    /// The engine of `job`, if it has one. vLLM fills its share with KV cache whatever else is on the GPU; asleep (level 2,
    /// trl 1.16, generation/vllm_generation.py) it holds neither weights nor cache.
    pub(super) fn of_job(job: &JobSpec) -> Option<Self> {
        let grpo = job.task.grpo()?;
        let Rollout::Vllm { gpu_memory_utilization, sleep_mode } = grpo.rollout else { return None };
        let awake_bytes = (job.gpu.usable_bytes as f64 * gpu_memory_utilization) as u64;
        let asleep_bytes = if sleep_mode { 0 } else { awake_bytes };
        Some(Self {
            awake_bytes,
            asleep_bytes,
            source: "gpu_memory_utilization of the GPU, as vLLM's profiling fills it",
        })
    }

    /// Bytes in a phase of this kind.
    pub(super) fn bytes_during(&self, kind: PhaseKind) -> u64 {
        if is_awake(kind) { self.awake_bytes } else { self.asleep_bytes }
    }

    /// The most that it and the trainer hold in one phase.
    pub(super) fn with_reserved(&self, peaks: &Peaks) -> u64 {
        let together = peaks.phases.iter().map(|peak| peak.reserved + self.bytes_during(peak.phase.kind));
        together.max().unwrap_or(0).max(peaks.reserved + self.asleep_bytes)
    }

    /// The phase in which it has least room to wake; `None` of one that never sleeps.
    pub(super) fn wakes_at<'a>(&self, peaks: &'a Peaks) -> Option<&'a PhasePeak> {
        let wakes = |peak: &&PhasePeak| is_awake(peak.phase.kind) && self.awake_bytes > self.asleep_bytes;
        peaks.phases.iter().filter(wakes).max_by_key(|peak| peak.reserved)
    }

    /// Refuses a share that cannot hold the policy's weights, and one that leaves too little for them.
    ///
    /// # Errors
    /// With the arithmetic.
    pub(super) fn check_engine(&self, job: &JobSpec, parameters: u64, trace: &Trace) -> Result<(), JobError> {
        let copy = parameters.saturating_mul(BYTES_PER_WEIGHT);
        let usable = job.gpu.usable_bytes;
        let (awake, left, weights) =
            (self.awake_bytes, usable.saturating_sub(self.awake_bytes), loaded_bytes(trace, "policy"));
        if awake < copy {
            let problem = format!(
                "`vllm.gpu_memory_utilization` gives the engine {} of {}: its copy of the policy alone is {parameters} \
                 parameters x {BYTES_PER_WEIGHT} bytes = {}",
                Bytes(awake),
                Bytes(usable),
                Bytes(copy)
            );
            return Err(JobError::new(problem)
                .about(&[keys::VLLM_GPU_MEMORY_UTILIZATION])
                .hint("raise it, or choose a larger GPU"));
        }
        if left < weights {
            let problem = format!(
                "`vllm.gpu_memory_utilization` leaves {} - {} = {} beside the engine: the policy's weights alone are {}",
                Bytes(usable),
                Bytes(awake),
                Bytes(left),
                Bytes(weights)
            );
            return Err(JobError::new(problem)
                .about(&[keys::VLLM_GPU_MEMORY_UTILIZATION])
                .hint("lower it, or choose a larger GPU"));
        }
        Ok(())
    }
}

/// The engine is built when the trainer has loaded its models, and wakes to generate.
const fn is_awake(kind: PhaseKind) -> bool {
    matches!(kind, PhaseKind::Load | PhaseKind::Generate)
}

/// Bytes of a model's weights, in the first phase in which it has any.
pub(super) fn loaded_bytes(trace: &Trace, model: &str) -> u64 {
    let is_weight =
        |allocation: &&Allocation| allocation.category == Category::Parameter && trace.model(allocation) == Some(model);
    let mut weights = trace.allocations.iter().filter(is_weight).peekable();
    let first = weights.peek().map(|allocation| allocation.phase);
    weights.take_while(|allocation| Some(allocation.phase) == first).map(|allocation| allocation.bytes).sum()
}
