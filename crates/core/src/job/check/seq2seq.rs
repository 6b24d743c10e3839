//! What training an encoder-decoder asks of a job.

use super::{MAX_TOKENS_PER_PASS, has_logits_for_labels, model_positions};
use crate::job::{JobError, JobErrorKind, JobSpec, Precision, Seq2SeqSpec, keys};
use crate::model_type::{BeyondPositions, ModelKind};

/// Refuses a model without a decoder that attends to an encoder, and what is not simulated of one.
pub(in crate::job) fn check_seq2seq(job: &JobSpec, spec: &Seq2SeqSpec) -> Result<(), JobError> {
    let facts = job.model.facts();
    if facts.kind != ModelKind::EncoderDecoder {
        return Err(JobError::new(format!("`{}` is no encoder-decoder", job.model.model_type))
            .about(&[keys::TASK])
            .hint(facts.kind.task_hint()));
    }
    if spec.target_len == 0 {
        return Err(JobError::new("`target_len` must be at least 1, found 0").about(&[keys::TARGET_LEN]));
    }
    if job.micro_batch_size.saturating_mul(spec.target_len) > MAX_TOKENS_PER_PASS {
        let problem = format!("`target_len` {} times the rows is more than a GPU can hold", spec.target_len);
        return Err(JobError::new(problem)
            .about(&[keys::TARGET_LEN, keys::MICRO_BATCH_SIZE])
            .hint("lower `micro_batch_size` or `target_len`"));
    }
    if job.precision == Precision::Fp16 {
        // from_pretrained keeps some of their weights in fp32, and layers bound their states.
        let problem = format!("`precision`: `{}` with weights in fp16 is not simulated", job.model.model_type);
        return Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
            .about(&[keys::PRECISION])
            .hint("set precision = \"amp-fp16\", which Trainer's fp16=True is, or \"bf16\"")
            .or_rehearse());
    }
    if spec.freeze_encoder && job.lora.is_some() {
        return Err(JobError::new(
            "`freeze_encoder`: with adapters the base is frozen, and the encoder's are trained all the same",
        )
        .about(&[keys::FREEZE_ENCODER])
        .hint("leave it out"));
    }
    fits_recording(job)?;
    fits_target(job, spec)?;
    has_logits_for_labels(job)
}

/// A recording has as many positions as its config says, and none that is padding.
fn fits_recording(job: &JobSpec) -> Result<(), JobError> {
    let recording = job.model.recording().map_err(|error| JobError::from(error).about(&[keys::MODEL]))?;
    match recording {
        Some([_, frames]) if frames / 2 != job.seq_len => Err(JobError::new(format!(
            "`seq_len` = {}: a recording of {frames} frames is {} positions to {}",
            job.seq_len,
            frames / 2,
            job.model.name
        ))
        .about(&[keys::SEQ_LEN])
        .hint("leave it out")),
        Some(_) if job.padded == Some(true) => {
            Err(JobError::new("`padded`: recordings are all of one length").about(&[keys::PADDED]).hint("leave it out"))
        }
        _ => Ok(()),
    }
}

/// Refuses labels beyond the rows of the decoder's table of positions.
fn fits_target(job: &JobSpec, spec: &Seq2SeqSpec) -> Result<(), JobError> {
    let facts = job.model.facts();
    let positions = match facts.hears {
        true => Some(job.model.config.size("max_target_positions", 448)?),
        false => model_positions(&job.model).filter(|_| facts.beyond_positions == BeyondPositions::Stops),
    };
    match positions.filter(|positions| spec.target_len > *positions) {
        Some(positions) => {
            let problem = format!(
                "`target_len` = {} is more than the {positions} positions of {}'s decoder",
                spec.target_len, job.model.name
            );
            Err(JobError::new(problem).about(&[keys::TARGET_LEN]).hint(format!("set it to {positions} or less")))
        }
        None => Ok(()),
    }
}

/// Refuses an encoder-decoder where nothing is trained: what its decoder reads and caches then is not simulated.
pub(in crate::job) fn is_no_encoder_decoder(job: &JobSpec) -> Result<(), JobError> {
    if job.model.facts().kind != ModelKind::EncoderDecoder {
        return Ok(());
    }
    let problem = format!("`{}` is simulated where it is trained on labels alone", job.model.model_type);
    Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
        .about(&[keys::TASK])
        .hint(ModelKind::EncoderDecoder.task_hint())
        .or_rehearse())
}
