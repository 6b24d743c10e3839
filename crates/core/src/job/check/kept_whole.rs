//! What layers do not go with that were measured with whole weights alone.

use crate::job::keys;
use crate::job::{CheckpointPolicy, JobError, JobErrorKind, JobSpec, Strategy};

/// Refuses what was not measured of them.
pub(super) fn check_kept_whole(job: &JobSpec) -> Result<(), JobError> {
    let Some(layers) = job.model.facts().kept_whole else { return Ok(()) };
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
            let problem = format!("`{key}`: not simulated with {layers}");
            Err(JobError::of_kind(JobErrorKind::Unsimulated, problem).about(&[key]).or_rehearse())
        }
    }
}
