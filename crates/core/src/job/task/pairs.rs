//! ORPO and CPO as TRL's trainers run them: chosen and rejected answers in one batch, and no reference.

use serde::{Deserialize, Serialize};

use super::{QuantizedBase, Spreading, TaskFacts, TaskName};
use crate::job::{JobError, JobSpec, check};

/// What they need beyond the policy. `micro_batch_size` counts pairs: a pass has twice as many rows.
#[derive(Clone, Debug, PartialEq)]
pub struct PairsSpec {
    /// Tokens of the prompt.
    pub prompt_len: u64,
    /// Tokens of the answer.
    pub completion_len: u64,
    /// What is made of a pair.
    pub loss: PairLoss,
    /// Whether the likelihood of chosen answers is part of the loss (`cpo_alpha` is not 0).
    pub has_nll: bool,
}

/// `ORPOTrainer`'s loss, or one of `CPOConfig`'s `loss_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairLoss {
    /// ORPO's, which needs means over an answer's tokens.
    OddsRatio,
    /// CPO's own, of sums over an answer's tokens.
    Sigmoid,
    /// With a margin at most.
    Hinge,
    /// IPO's, of means over an answer's tokens.
    Ipo,
    /// `SimPO`'s, of means over an answer's tokens.
    Simpo,
}

impl PairLoss {
    /// Whether an answer's log-probability is the mean over its tokens.
    pub(crate) const fn averages(self) -> bool {
        matches!(self, Self::OddsRatio | Self::Ipo | Self::Simpo)
    }
}

impl TaskFacts for PairsSpec {
    fn name(&self) -> TaskName {
        if self.loss == PairLoss::OddsRatio { TaskName::Orpo } else { TaskName::Cpo }
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::preference::check_pairs(job, self)
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
        QuantizedBase::Prepared
    }
}
