//! Training on classes of rows, of tokens or of images (`AutoModelForSequenceClassification`, `AutoModelForTokenClassification`,
//! `AutoModelForImageClassification`).

use super::{LossOf, Spreading, TaskFacts, TaskName};
use crate::job::{JobError, JobSpec, check};

/// What is given a class.
pub(super) struct Classification(TaskName);

pub(super) static OF_SEQUENCES: Classification = Classification(TaskName::SequenceClassification);
pub(super) static OF_TOKENS: Classification = Classification(TaskName::TokenClassification);
pub(super) static OF_IMAGES: Classification = Classification(TaskName::ImageClassification);

impl TaskFacts for Classification {
    fn name(&self) -> TaskName {
        self.0
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::has_classification_head(job)?;
        check::has_logits_for_labels(job)
    }

    fn loss(&self) -> LossOf {
        LossOf::Class
    }

    fn spreading(&self) -> Spreading {
        Spreading::Ranks
    }
}
