//! KTO as TRL's `KTOTrainer` runs it: answers that are desirable or not, a policy and its frozen reference.

use serde::{Deserialize, Serialize};

use super::{QuantizedBase, Spreading, TaskFacts, TaskName};
use crate::job::{JobError, JobSpec, check, keys};

/// What KTO needs beyond the policy. `micro_batch_size` counts prompts with an answer each.
#[derive(Clone, Debug, PartialEq)]
pub struct KtoSpec {
    /// Tokens of the prompt.
    pub prompt_len: u64,
    /// Tokens of the answer.
    pub completion_len: u64,
    /// Whether the reference's log-probabilities are computed once before training (`precompute_ref_log_probs`).
    pub precompute_ref_log_probs: bool,
    /// The loss (`loss_type`).
    pub loss: KtoLoss,
    /// How many rows of a batch are desirable.
    pub desirable_rows: u64,
}

/// `loss_type` of `KTOConfig`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KtoLoss {
    /// KTO's, whose divergence is estimated from mismatched answers: one more pass.
    Kto,
    /// APO's variant without that pass.
    ApoZeroUnpaired,
}

impl KtoLoss {
    /// Whether the divergence is estimated from mismatched answers.
    pub(crate) const fn estimates_divergence(self) -> bool {
        matches!(self, Self::Kto)
    }
}

impl TaskFacts for KtoSpec {
    fn name(&self) -> TaskName {
        TaskName::Kto
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::preference::check_kto(job, self)
    }

    fn completion_len(&self) -> Option<u64> {
        Some(self.completion_len)
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

    fn precomputed_reference(&self) -> Option<(&'static str, bool)> {
        Some((keys::KTO_PRECOMPUTE_REF_LOG_PROBS, self.precompute_ref_log_probs))
    }
}
