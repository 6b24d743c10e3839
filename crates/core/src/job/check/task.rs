//! What a task asks of a model and of a job's other keys; the tasks themselves say which of these hold for them.

use super::contrastive::is_no_pair;
use crate::job::keys;
use crate::job::{
    Attention, CheckpointPolicy, JobError, JobErrorKind, JobSpec, LogProbs, LossKernel, Precision, Spreading, Strategy,
    Task, TransformersVersion,
};
use crate::model_type::ModelKind;

/// Refuses what the task's program does not do.
pub(super) fn check_task(job: &JobSpec) -> Result<(), JobError> {
    if job.model.facts().kind == ModelKind::Puzzle && job.task.facts().spreading() != Spreading::OwnRanks {
        return Err(JobError::new("HRM is no language model").about(&[keys::TASK]).hint("set task = \"hrm\""));
    }
    if job.model.facts().kind == ModelKind::Denoiser && !matches!(job.task, Task::Diffusion(_)) {
        return Err(JobError::new(format!("`{}` is a denoiser", job.model.model_type))
            .about(&[keys::TASK])
            .hint(ModelKind::Denoiser.task_hint()));
    }
    is_no_pair(job)?;
    unread_keys(job)?;
    job.task.facts().check(job)
}

/// Refuses keys that the task's program has no switch for.
fn unread_keys(job: &JobSpec) -> Result<(), JobError> {
    match job.task.facts().unread_keys().iter().find(|(key, _)| is_set(job, key) == Some(true)) {
        Some((key, why)) => {
            let program = job.task.facts().program();
            Err(JobError::new(format!("`{key}` has no meaning for {program}: {why}"))
                .about(&[key])
                .hint("leave it out"))
        }
        None => Ok(()),
    }
}

/// Whether a key says something else than what a program does that does not read it; `None` for a key that is not told here.
fn is_set(job: &JobSpec, key: &str) -> Option<bool> {
    let in_config = |field| job.model.config.get(field).is_some();
    Some(match key {
        keys::PRECISION => job.precision != Precision::Fp32,
        keys::ATTENTION => job.attention != Attention::Sdpa,
        keys::GRADIENT_ACCUMULATION_STEPS => job.gradient_accumulation_steps > 1,
        keys::GRADIENT_CHECKPOINTING => job.gradient_checkpointing != CheckpointPolicy::Off,
        keys::CLIP_GRAD_NORM => job.clip_grad_norm.is_some(),
        keys::ZERO_GRAD_SET_TO_NONE => !job.zero_grad_set_to_none,
        keys::TRAIN_MODE => !job.train_mode,
        keys::DROPOUT => in_config("attention_dropout"),
        keys::TIE_WORD_EMBEDDINGS => in_config("tie_word_embeddings"),
        keys::USE_CACHE => job.use_cache,
        keys::KEEP_OUTPUTS => job.logits.keep_outputs,
        keys::LOGITS_TO_KEEP => job.logits.logits_to_keep.is_some(),
        keys::LOSS => job.logits.loss != LossKernel::Full,
        keys::GRPO_LOG_PROBS => job.task.grpo().is_some_and(|grpo| grpo.log_probs == LogProbs::FullLogits),
        keys::GRPO_CAST_LM_HEAD_TO_FP32 => job.task.grpo().is_some_and(|grpo| grpo.cast_lm_head_to_fp32),
        "lora" => job.lora.is_some(),
        _ => return None,
    })
}

/// Refuses a model that predicts no next token.
pub(in crate::job) fn is_decoder(job: &JobSpec) -> Result<(), JobError> {
    let kind = job.model.facts().kind;
    if matches!(kind, ModelKind::MaskedLm | ModelKind::Image | ModelKind::EncoderDecoder) {
        return Err(JobError::new(format!("`{}` is no decoder", job.model.model_type))
            .about(&[keys::TASK])
            .hint(kind.task_hint()));
    }
    Ok(())
}

/// Refuses a model without a masked-LM head.
pub(in crate::job) fn has_masked_lm_head(job: &JobSpec) -> Result<(), JobError> {
    if job.model.facts().kind != ModelKind::MaskedLm {
        return Err(JobError::new(format!("`{}` has no masked-LM head", job.model.model_type))
            .about(&[keys::TASK])
            .hint(job.model.facts().kind.task_hint()));
    }
    Ok(())
}

/// Refuses a model without a head for classes, and what is trained with another loss than cross-entropy.
pub(in crate::job) fn has_classification_head(job: &JobSpec) -> Result<(), JobError> {
    let model = &job.model;
    let kind = model.facts().kind;
    if kind == ModelKind::EncoderDecoder {
        has_decoder_head(job)?;
    }
    if (kind == ModelKind::Image) != (job.task == Task::ImageClassification) {
        let rows = if kind == ModelKind::Image { "are images" } else { "are no images" };
        return Err(JobError::new(format!("the rows of `{}` {rows}", model.model_type))
            .about(&[keys::TASK])
            .hint(kind.task_hint()));
    }
    if kind == ModelKind::Decoder {
        has_decoder_head(job)?;
    }
    let labels = model.config.num_labels().map_err(|error| JobError::from(error).about(&[keys::MODEL]))?;
    let problem_type = model.config.text("problem_type", "").unwrap_or_default();
    let loss = match problem_type {
        _ if job.task == Task::TokenClassification => return Ok(()),
        "" if labels == 1 => "regression",
        "" | "single_label_classification" => return Ok(()),
        other => other,
    };
    Err(JobError::of_kind(JobErrorKind::Unsimulated, format!("the loss of `{loss}` is not simulated"))
        .about(&[keys::MODEL])
        .hint(
            "classes that exclude one another are: set model.num_labels to 2 or more, and leave out model.problem_type",
        )
        .or_rehearse())
}

/// Refuses a decoder's head that transformers does not have, or that is not known.
pub(in crate::job) fn has_decoder_head(job: &JobSpec) -> Result<(), JobError> {
    let model = &job.model;
    if !model.can_have(model.beside.head) {
        let problem = format!("the classification head of `{}` is not simulated", model.model_type);
        return Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
            .about(&[keys::TASK])
            .hint("heads are simulated where transformers has them on Llama, Qwen, Mistral, Gemma, Phi, GPT-2 and other families of their own")
            .or_rehearse());
    }
    if job.transformers < TransformersVersion::DEFAULT {
        let problem = format!(
            "`transformers` {}: heads for classes of decoders are simulated from {} on",
            job.transformers,
            TransformersVersion::DEFAULT
        );
        return Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
            .about(&[keys::TRANSFORMERS, keys::TASK])
            .hint("leave `transformers` out: the head itself takes few bytes")
            .or_rehearse());
    }
    if model.config.flag("output_router_logits", false)? {
        let problem = "config key `output_router_logits`: what routers leave under a head for classes is not simulated";
        return Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
            .about(&[keys::MODEL])
            .hint("leave it out: such a head adds no loss of routers")
            .or_rehearse());
    }
    match job.parallel.strategy {
        Strategy::TensorParallel { .. } | Strategy::PipelineParallel { .. } => Err(JobError::of_kind(
            JobErrorKind::Unsimulated,
            "`parallel`: a head for classes is not simulated on a model that is split",
        )
        .about(&[keys::PARALLEL, keys::TASK])
        .hint("use parallel = \"ddp\" or \"fsdp2\"")
        .or_rehearse()),
        _ => Ok(()),
    }
}

/// Refuses another model in HRM's loop.
pub(crate) fn is_hrm(job: &JobSpec) -> Result<(), JobError> {
    if job.model.facts().kind != ModelKind::Puzzle {
        return Err(JobError::new(format!("task = \"hrm\" runs HRM, not `{}`", job.model.model_type))
            .about(&[keys::TASK])
            .hint("set task = \"causal_lm\""));
    }
    Ok(())
}

/// Refuses `logits_to_keep` where every position has a label.
pub(in crate::job) fn has_logits_for_labels(job: &JobSpec) -> Result<(), JobError> {
    if job.logits.logits_to_keep.is_none() {
        return Ok(());
    }
    let error =
        JobError::new("`logits_to_keep` leaves training without logits for its labels").about(&[keys::LOGITS_TO_KEEP]);
    // Liger's loss is a way out where there is one, and where it is not set already.
    let liger = job.model.facts().liger.fuses_loss() && job.logits.loss == LossKernel::Full;
    Err(error.hint(match liger {
        true => "leave it out, or set loss = \"liger\" to save the logits' memory",
        false => "leave it out",
    }))
}

/// Refuses `logits_to_keep` of a head that always computes all positions.
pub(in crate::job) fn leaves_logits_out(job: &JobSpec) -> Result<(), JobError> {
    if job.model.facts().kind != ModelKind::Decoder && job.logits.logits_to_keep.is_some() {
        let problem = format!("`logits_to_keep`: the head of `{}` computes all positions", job.model.model_type);
        return Err(JobError::new(problem).about(&[keys::LOGITS_TO_KEEP]).hint("leave it out"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::{OptimizerKind, from_case};

    fn hrm() -> JobSpec {
        from_case(&json!({"kind": "hrm", "batch": 2})).unwrap()
    }

    #[test]
    fn what_a_program_does_not_read_is_refused_by_name() {
        assert_eq!(check_task(&JobSpec { optimizer: OptimizerKind::Lion, ..hrm() }), Ok(()));
        let cases = [
            (JobSpec { precision: Precision::AmpBf16, ..hrm() }, "`precision`"),
            (JobSpec { attention: Attention::Eager, ..hrm() }, "`attention`"),
            (JobSpec { gradient_accumulation_steps: 2, ..hrm() }, "`gradient_accumulation_steps`"),
            (JobSpec { train_mode: false, ..hrm() }, "`train_mode`"),
        ];
        for (job, key) in cases {
            assert!(check_task(&job).unwrap_err().to_string().starts_with(key), "{key}");
        }
    }

    #[test]
    fn every_key_that_a_program_does_not_read_can_be_seen_to_be_set() {
        let cases = [json!({}), json!({"kind": "hrm"}), json!({"kind": "trl_rloo"}), json!({"kind": "swarm_node"})];
        for job in cases.map(|case| from_case(&case).unwrap()) {
            for (key, _) in job.task.facts().unread_keys() {
                assert_eq!(is_set(&job, key), Some(false), "{key}");
            }
        }
    }
}
