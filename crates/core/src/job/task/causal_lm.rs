//! Next-token training with labels.

use super::{LossOf, QuantizedBase, Spreading, TaskFacts, TaskName};
use crate::job::{JobError, JobSpec, check};

pub(super) struct CausalLm;

impl TaskFacts for CausalLm {
    fn name(&self) -> TaskName {
        TaskName::CausalLm
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::is_decoder(job)?;
        check::has_logits_for_labels(job)
    }

    fn loss(&self) -> LossOf {
        LossOf::NextToken
    }

    fn spreading(&self) -> Spreading {
        Spreading::Ranks
    }

    fn takes_adapters(&self) -> bool {
        true
    }

    fn quantized_base(&self) -> QuantizedBase {
        QuantizedBase::AsLoaded
    }
}
