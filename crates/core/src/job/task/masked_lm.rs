//! Masked-token training with labels (BERT).

use super::{LossOf, Spreading, TaskFacts, TaskName};
use crate::job::{JobError, JobSpec, check};

pub(super) struct MaskedLm;

impl TaskFacts for MaskedLm {
    fn name(&self) -> TaskName {
        TaskName::MaskedLm
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::has_masked_lm_head(job)?;
        check::has_logits_for_labels(job)
    }

    fn loss(&self) -> LossOf {
        LossOf::MaskedToken
    }

    fn spreading(&self) -> Spreading {
        Spreading::Ranks
    }
}
