//! Images and their texts, as `CLIPModel` and `SiglipModel` learn which belong together (`return_loss=True`): in a loop, or in a Trainer as
//! transformers' example run_clip.py feeds it.

use super::{LossOf, Passes, Spreading, TaskFacts, TaskName};
use crate::job::{JobError, JobSpec, check};

pub(super) struct Contrastive;

impl TaskFacts for Contrastive {
    fn name(&self) -> TaskName {
        TaskName::Contrastive
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::contrastive::check_contrastive(job)
    }

    fn loss(&self) -> LossOf {
        LossOf::Class
    }

    fn passes(&self) -> Passes {
        Passes::One("each text is told from the others of its pass: fewer pairs in it are another loss")
    }

    fn spreading(&self) -> Spreading {
        Spreading::Replicas
    }

    fn takes_adapters(&self) -> bool {
        true
    }
}
