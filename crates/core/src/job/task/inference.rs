//! Forward passes without gradients: one, or those of `generate`.

use super::{LossOf, TaskFacts, TaskName};
use crate::job::keys;
use crate::job::{JobError, JobSpec, check};

/// One forward pass.
pub(super) struct InferenceForward;

/// `generate` with a KV cache.
pub(super) struct Generate;

impl TaskFacts for InferenceForward {
    fn name(&self) -> TaskName {
        TaskName::InferenceForward
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::seq2seq::is_no_encoder_decoder(job)?;
        check::leaves_logits_out(job)
    }

    fn loss(&self) -> LossOf {
        LossOf::Nobody
    }
}

impl TaskFacts for Generate {
    fn name(&self) -> TaskName {
        TaskName::Generate
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::seq2seq::is_no_encoder_decoder(job)?;
        check::is_decoder(job)?;
        match job.max_new_tokens {
            0 => Err(JobError::new("`max_new_tokens` is 0: nothing is generated")
                .about(&[keys::MAX_NEW_TOKENS])
                .hint("set it to 1 or more")),
            _ => Ok(()),
        }
    }

    fn loss(&self) -> LossOf {
        LossOf::Nobody
    }
}
