//! What a vision-language model with its tower is simulated for, and how many images a row has room for.

use crate::job::keys;
use crate::job::{
    Attention, JobError, JobErrorKind, JobSpec, LossKernel, Strategy, TaskName, TransformersVersion, Vision,
};

/// Patches of a pass: what is simulated of windows stays a matter of seconds.
const MAX_PATCHES: u64 = 1 << 20;

/// Refuses what nobody measured with a tower, and rows without room for their images.
pub(super) fn check_vision(job: &JobSpec) -> Result<(), JobError> {
    let Some(vision) = &job.model.beside.vision else { return Ok(()) };
    fits_row(job, vision)?;
    let refused = |key: &'static str, problem: &str| {
        let hint = "leave out images_per_row: the language model alone is then estimated, and not said to fit";
        Err(JobError::of_kind(JobErrorKind::Unsimulated, format!("`{key}`: {problem} is not simulated with images"))
            .about(&[key])
            .hint(hint)
            .or_rehearse())
    };
    if !matches!(job.task.name(), TaskName::CausalLm | TaskName::InferenceForward) {
        return refused(keys::TASK, "the task");
    }
    if !matches!(job.parallel.strategy, Strategy::None | Strategy::Ddp(_)) {
        return refused(keys::PARALLEL, "more than one GPU but with DDP");
    }
    if job.attention == Attention::FlashAttention2 {
        return refused(keys::ATTENTION, "the flash-attn package");
    }
    if job.logits.loss == LossKernel::Liger || job.liger_kernels {
        return refused(keys::LOSS, "Liger");
    }
    if job.padding_free {
        return refused(keys::PADDING_FREE, "rows end to end");
    }
    if job.row_growth.is_some() {
        return refused(keys::SEQ_LEN_START, "growing rows");
    }
    if job.transformers < TransformersVersion::DEFAULT {
        return refused(keys::TRANSFORMERS, "an older transformers");
    }
    Ok(())
}

fn fits_row(job: &JobSpec, vision: &Vision) -> Result<(), JobError> {
    let about_images = |problem: String| JobError::new(problem).about(&[keys::IMAGES_PER_ROW, keys::IMAGE_SIZE]);
    let tokens = vision.tokens().map_err(|error| JobError::from(error).about(&[keys::MODEL]))?;
    let [height, width] = vision.sides;
    let needed = tokens.saturating_mul(vision.images_per_row).saturating_add(vision.images_per_row + 1);
    if needed > job.seq_len {
        return Err(about_images(format!(
            "`images_per_row` {}: an image of {height} by {width} pixels is {tokens} tokens, and rows have {}",
            vision.images_per_row, job.seq_len
        ))
        .hint(format!("set seq_len to {needed} or more: rows have tokens of text round their images")));
    }
    let patches = vision.patches_of(job.micro_batch_size);
    if patches.is_none_or(|patches| patches > MAX_PATCHES) {
        let problem = format!("more than {MAX_PATCHES} patches of images in a pass are not simulated");
        return Err(JobError { kind: JobErrorKind::Unsimulated, ..about_images(problem) }
            .hint("lower micro_batch_size, images_per_row or image_size")
            .or_rehearse());
    }
    Ok(())
}
