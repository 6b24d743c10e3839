//! DPO as TRL's `DPOTrainer` runs it: chosen and rejected answers in one batch, a policy and its frozen reference.

use super::{QuantizedBase, Spreading, TaskFacts, TaskName};
use crate::job::{JobError, JobSpec, check, keys};

/// What DPO needs beyond the policy. `micro_batch_size` counts pairs: a pass has twice as many rows.
#[derive(Clone, Debug, PartialEq)]
pub struct DpoSpec {
    /// Tokens of the prompt.
    pub prompt_len: u64,
    /// Tokens of the answer.
    pub completion_len: u64,
    /// Whether the reference's log-probabilities are computed once before training (`precompute_ref_log_probs`).
    pub precompute_ref_log_probs: bool,
}

impl TaskFacts for DpoSpec {
    fn name(&self) -> TaskName {
        TaskName::Dpo
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::trainer::check_dpo(job, self)
    }

    fn completion_len(&self) -> Option<u64> {
        Some(self.completion_len)
    }

    fn precomputed_reference(&self) -> Option<(&'static str, bool)> {
        Some((keys::DPO_PRECOMPUTE_REF_LOG_PROBS, self.precompute_ref_log_probs))
    }

    fn learns_preferences(&self) -> bool {
        true
    }

    fn spreading(&self) -> Spreading {
        Spreading::Replicas
    }

    fn takes_adapters(&self) -> bool {
        true
    }

    fn quantized_base(&self) -> QuantizedBase {
        QuantizedBase::AsLoaded
    }
}
