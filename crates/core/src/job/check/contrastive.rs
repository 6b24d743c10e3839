//! What training on images and their texts asks of a job.

use super::has_logits_for_labels;
use crate::job::{Attention, Framework, JobError, JobErrorKind, JobSpec, Precision, Strategy, Task, keys};
use crate::model_type::ModelKind;

/// Refuses a model without two towers, and what was not measured of one.
pub(in crate::job) fn check_contrastive(job: &JobSpec) -> Result<(), JobError> {
    let kind = job.model.facts().kind;
    if kind != ModelKind::ImageText {
        return Err(JobError::new(format!("`{}` has no towers of images and of texts", job.model.model_type))
            .about(&[keys::TASK])
            .hint(kind.task_hint()));
    }
    has_logits_for_labels(job)?;
    fits_config(job)?;
    match unsimulated(job) {
        Some((keys, hint)) => {
            let problem = format!("`{}` is not simulated with images and their texts", keys[0]);
            Err(JobError::of_kind(JobErrorKind::Unsimulated, problem).about(keys).hint(hint).or_rehearse())
        }
        None => Ok(()),
    }
}

/// Fields that belong to one of the towers, and mean nothing beside their configs.
const OF_A_TOWER: [&str; 11] = [
    "attention_dropout",
    "hidden_act",
    "hidden_size",
    keys::IMAGE_SIZE,
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_channels",
    "num_hidden_layers",
    "patch_size",
    "vocab_size",
];

/// Refuses sizes that nothing would read.
fn fits_config(job: &JobSpec) -> Result<(), JobError> {
    let Some(field) = OF_A_TOWER.into_iter().find(|field| job.model.config.get(field).is_some()) else { return Ok(()) };
    let problem = format!("config key `{field}`: the towers of `{}` have configs of their own", job.model.model_type);
    Err(JobError::of_kind(JobErrorKind::Model, problem)
        .about(&[keys::MODEL])
        .hint("say it in `text_config` or `vision_config` of a config.json"))
}

/// Refuses such a model in any other task.
pub(super) fn is_no_pair(job: &JobSpec) -> Result<(), JobError> {
    if job.model.facts().kind != ModelKind::ImageText || job.task == Task::Contrastive {
        return Ok(());
    }
    let problem = format!("`{}` is simulated where it is trained on images and their texts", job.model.model_type);
    Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
        .about(&[keys::TASK])
        .hint(ModelKind::ImageText.task_hint())
        .or_rehearse())
}

/// The first key that says what was not measured, and what would do.
fn unsimulated(job: &JobSpec) -> Option<(&'static [&'static str], &'static str)> {
    if !matches!(job.framework, Framework::Trainer | Framework::Loop) {
        return Some((&[keys::FRAMEWORK], "set framework = \"trainer\" or \"loop\""));
    }
    if !matches!(job.precision, Precision::Fp32 | Precision::Bf16 | Precision::AmpBf16 | Precision::AmpFp16) {
        return Some((&[keys::PRECISION], "set precision = \"amp-bf16\" or \"amp-fp16\""));
    }
    if !matches!(job.attention, Attention::Sdpa | Attention::Eager) {
        return Some((&[keys::ATTENTION], "set attention = \"sdpa\""));
    }
    if !matches!(job.parallel.strategy, Strategy::None | Strategy::Ddp(_)) {
        return Some((&[keys::PARALLEL], "set parallel = \"ddp\": each rank needs at least as much"));
    }
    if job.activation_offload.is_some() {
        return Some((&[keys::ACTIVATION_OFFLOADING], "leave it out"));
    }
    if job.lora.as_ref().is_some_and(|lora| lora.use_dora) {
        return Some((&[keys::LORA_USE_DORA], "leave it out"));
    }
    if job.row_growth.is_some() {
        return Some((&[keys::SEQ_LEN_START], "leave it out"));
    }
    None
}
