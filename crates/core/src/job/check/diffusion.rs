//! What diffusion training asks of a job.

use crate::job::{Attention, DiffusionSpec, JobError, JobErrorKind, JobSpec, Precision, Strategy, keys};
use crate::model_type::{ModelKind, SD3};

/// The most tokens of all images in a pass.
const MAX_TOKENS: u64 = 1 << 32;
/// Latents are an eighth of the image, and two by two of their numbers make a token.
const PIXELS_PER_TOKEN: u64 = 16;

/// Refuses what the examples do not do, and what is not simulated of them.
pub(crate) fn check_diffusion(job: &JobSpec, spec: &DiffusionSpec) -> Result<(), JobError> {
    if job.model.facts().kind != ModelKind::Denoiser {
        let problem = format!("`{}` is no denoiser of diffusers", job.model.model_type);
        return Err(JobError::new(problem).about(&[keys::TASK]).hint(job.model.facts().kind.task_hint()));
    }
    is_simulated(job)?;
    fits_resolution(job, spec)
}

fn is_simulated(job: &JobSpec) -> Result<(), JobError> {
    let has_kernel = !matches!(job.attention, Attention::Eager | Attention::FlashAttention2);
    let is_alone = job.parallel.world_size <= 1 && matches!(job.parallel.strategy, Strategy::None);
    let refused = [
        (
            keys::PRECISION,
            job.precision == Precision::Fp16,
            "weights in fp16 without a scaler",
            "set it to \"amp-fp16\"",
        ),
        (keys::ATTENTION, !has_kernel, "attention that is not SDPA's", "leave it out"),
        (keys::WORLD_SIZE, !is_alone, "diffusion training on several ranks", "take the rows of one GPU"),
    ];
    match refused.into_iter().find(|(_, is_refused, ..)| *is_refused) {
        Some((key, _, what, hint)) => {
            let problem = format!("`{key}`: {what} is not simulated");
            Err(JobError::of_kind(JobErrorKind::Unsimulated, problem).about(&[key]).hint(hint).or_rehearse())
        }
        None => Ok(()),
    }
}

/// Images must be cut into whole tokens, and have no more of them than there are positions.
fn fits_resolution(job: &JobSpec, spec: &DiffusionSpec) -> Result<(), JobError> {
    let error = |problem: String, hint: String| Err(JobError::new(problem).about(&[keys::RESOLUTION]).hint(hint));
    let resolution = spec.resolution;
    if !resolution.is_multiple_of(PIXELS_PER_TOKEN) || resolution == 0 {
        let problem = format!("`resolution` must be a multiple of {PIXELS_PER_TOKEN} pixels, found {resolution}");
        return error(problem, format!("set it to {}", resolution.next_multiple_of(PIXELS_PER_TOKEN).max(64)));
    }
    let side = resolution / PIXELS_PER_TOKEN;
    let tokens = side.saturating_mul(side).saturating_add(job.seq_len);
    if job.micro_batch_size.saturating_mul(tokens) > MAX_TOKENS {
        let problem = format!(
            "`resolution` {resolution} makes {tokens} tokens of each of {} images: more than a GPU can hold",
            job.micro_batch_size
        );
        return error(problem, "lower it, or `micro_batch_size`".to_owned());
    }
    let positions = job.model.config.get("pos_embed_max_size").and_then(serde_json::Value::as_u64).unwrap_or(96);
    if job.model.model_type == SD3 && side > positions {
        let problem = format!(
            "`resolution` {resolution} has {side} rows of tokens, {} has positions of {positions}",
            job.model.name
        );
        return error(problem, format!("set it to {} or less", positions.saturating_mul(PIXELS_PER_TOKEN)));
    }
    Ok(())
}
