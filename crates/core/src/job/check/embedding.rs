//! What sentence-transformers' trainer refuses, and what of it is not simulated.

use super::model_positions;
use super::trainer::{bound_rows, holds_batches, not_zero};
use crate::dtype::DType;
use crate::job::{
    Attention, EmbeddingSpec, Framework, Head, JobError, JobErrorKind, JobSpec, ModelSpec, Precision,
    TransformersVersion, keys,
};
use crate::model_type::embedding_models;

/// The most parts that a batch is embedded in, of all its columns.
const MAX_PARTS: u64 = 1 << 8;

/// Refuses a model or setting whose embeddings were not measured.
pub(in crate::job) fn check_embedding(job: &JobSpec, spec: &EmbeddingSpec) -> Result<(), JobError> {
    can_embed(&job.model)?;
    not_zero(&[(keys::EMBEDDING_ANCHOR_LEN, spec.anchor_len)])?;
    holds_batches(job)?;
    fits_anchors(&job.model, spec.anchor_len)?;
    let columns = spec.negatives.saturating_add(2);
    let rows = job.micro_batch_size.saturating_mul(columns);
    bound_rows(rows, "`micro_batch_size` x columns", job.seq_len.max(spec.anchor_len))?;
    if let Some(size) = spec.mini_batch_size
        && job.micro_batch_size.div_ceil(size.max(1)).saturating_mul(columns) > MAX_PARTS
    {
        let problem =
            format!("`{}`: a batch of more than {MAX_PARTS} parts is not simulated", keys::EMBEDDING_MINI_BATCH_SIZE);
        return Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
            .about(&[keys::EMBEDDING_MINI_BATCH_SIZE, keys::MICRO_BATCH_SIZE])
            .hint("raise it, or lower `micro_batch_size`: what each part leaves is small")
            .or_rehearse());
    }
    match unsimulated(job) {
        Some((keys, hint)) => {
            let problem = format!("`{}` is not simulated with embeddings", keys[0]);
            Err(JobError::of_kind(JobErrorKind::Unsimulated, problem).about(keys).hint(hint).or_rehearse())
        }
        None => Ok(()),
    }
}

/// A model type whose bare model was measured.
fn can_embed(model: &ModelSpec) -> Result<(), JobError> {
    if model.can_have(Head::Base) && model.beside.vision.is_none() {
        return Ok(());
    }
    let problem = format!("embeddings of `{}` are not simulated", model.model_type);
    Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
        .about(&[keys::TASK, keys::MODEL])
        .hint(format!("simulated are those of {}", embedding_models().join(", ")))
        .or_rehearse())
}

/// Anchors stand at the model's positions as other texts do.
fn fits_anchors(model: &ModelSpec, tokens: u64) -> Result<(), JobError> {
    let positions = model_positions(model).filter(|_| model.has_position_table());
    match positions.filter(|positions| tokens > *positions) {
        Some(positions) => {
            let problem = format!("`{}` is {tokens}, of {positions} positions", keys::EMBEDDING_ANCHOR_LEN);
            Err(JobError::new(problem)
                .about(&[keys::EMBEDDING_ANCHOR_LEN])
                .hint(format!("set it to {positions} or less")))
        }
        None => Ok(()),
    }
}

/// The first key that says what was not measured, and what would do.
fn unsimulated(job: &JobSpec) -> Option<(&'static [&'static str], &'static str)> {
    let frameworks = [Framework::Trainer, Framework::Loop];
    if !frameworks.contains(&job.framework) {
        return Some((&[keys::FRAMEWORK, keys::TASK], "set framework = \"trainer\" or \"loop\""));
    }
    if matches!(job.precision, Precision::Fp16 | Precision::Fp16Amp) {
        return Some((&[keys::PRECISION], "set precision = \"amp-bf16\" or \"amp-fp16\""));
    }
    if job.lora.is_some() && job.precision.weight_dtype() != DType::Float32 {
        return Some((&[keys::LORA_R, keys::PRECISION], "with adapters set precision = \"amp-bf16\" or \"fp32\""));
    }
    if job.activation_offload.is_some() {
        return Some((&[keys::ACTIVATION_OFFLOADING], "leave it out"));
    }
    if !matches!(job.attention, Attention::Sdpa | Attention::Eager) {
        return Some((&[keys::ATTENTION], "set attention = \"sdpa\""));
    }
    if job.transformers < TransformersVersion::DEFAULT {
        return Some((&[keys::TRANSFORMERS], "leave it out"));
    }
    None
}
