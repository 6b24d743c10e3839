//! What layers that have their weights in common do not go with here.

use crate::job::keys;
use crate::job::{CheckpointPolicy, JobError, JobErrorKind, JobSpec, Strategy};

/// Refuses what was not measured where one weight is that of several modules.
pub(super) fn check_shared_weights(job: &JobSpec) -> Result<(), JobError> {
    if !job.model.facts().shares_weights {
        return Ok(());
    }
    let is_divided = !matches!(job.parallel.strategy, Strategy::None | Strategy::Ddp(_));
    let reenters = job.use_reentrant && job.gradient_checkpointing != CheckpointPolicy::Off;
    let unmeasured = [
        (job.quantization.is_some(), keys::QUANTIZATION),
        (is_divided, keys::PARALLEL),
        (reenters, keys::USE_REENTRANT),
    ];
    match unmeasured.into_iter().find(|(is_asked, _)| *is_asked) {
        None => Ok(()),
        Some((_, key)) => {
            let problem = format!("`{key}`: not simulated with layers that have their weights in common");
            Err(JobError::of_kind(JobErrorKind::Unsimulated, problem).about(&[key]).or_rehearse())
        }
    }
}
