//! Cases of one language model: training, inference, generation.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::images::CaseImages;
use super::{CaseLora, CasePrecision, checkpoint_policy, clip_spec, default_model, plain_job, told_of_case};
use crate::job::{
    Attention, Ema, JobError, JobSpec, LogitsPath, LossKernel, OptimizerKind, Seq2SeqSpec, Task, TaskName,
    TransformersVersion,
};

/// A case as written; a field left out has the script's default.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Case {
    id: String,
    model: Map<String, Value>,
    task: TaskName,
    micro_batch: u64,
    seq_len: u64,
    target_len: u64,
    precision: CasePrecision,
    attn: Attention,
    gradient_checkpointing: bool,
    optimizer: OptimizerKind,
    optimizer_in_backward: bool,
    ema: Ema,
    optim_args: String,
    optim_target_modules: Vec<String>,
    grad_accum: u64,
    zero_grad_set_to_none: bool,
    clip_grad_norm: Option<f64>,
    lora: Option<CaseLora>,
    use_cache: bool,
    keep_outputs: bool,
    train_mode: bool,
    logits_to_keep: Option<u64>,
    max_new_tokens: Option<u64>,
    steps: u32,
    loss: LossKernel,
    transformers: String,
    device_map: bool,
    padded: bool,
    images_per_row: u64,
    image_size: Option<Value>,
    freeze_vision_tower: bool,
    freeze_encoder: bool,
    freeze_multi_modal_projector: bool,
    reentrant: bool,
    #[serde(rename = "fp32_matmul")]
    _fp32_matmul: String,
    #[serde(rename = "note")]
    _note: String,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            id: "case".to_owned(),
            model: default_model(),
            task: TaskName::CausalLm,
            micro_batch: 1,
            seq_len: 128,
            target_len: 128,
            precision: CasePrecision::Fp32,
            attn: Attention::Sdpa,
            gradient_checkpointing: false,
            optimizer: OptimizerKind::Adamw,
            optimizer_in_backward: false,
            ema: Ema::Off,
            optim_args: String::new(),
            optim_target_modules: Vec::new(),
            grad_accum: 1,
            zero_grad_set_to_none: true,
            clip_grad_norm: None,
            lora: None,
            use_cache: false,
            keep_outputs: false,
            train_mode: true,
            logits_to_keep: None,
            max_new_tokens: None,
            steps: 2,
            loss: LossKernel::Full,
            transformers: TransformersVersion::DEFAULT.to_string(),
            device_map: false,
            padded: false,
            images_per_row: 1,
            image_size: None,
            freeze_vision_tower: false,
            freeze_encoder: false,
            freeze_multi_modal_projector: false,
            reentrant: false,
            _fp32_matmul: "highest".to_owned(),
            _note: String::new(),
        }
    }
}

pub(super) fn job_of_case(case: Case) -> Result<JobSpec, JobError> {
    let task = match case.task {
        TaskName::CausalLm => Task::CausalLm,
        TaskName::MaskedLm => Task::MaskedLm,
        TaskName::Seq2SeqLm => {
            Task::Seq2SeqLm(Seq2SeqSpec { target_len: case.target_len, freeze_encoder: case.freeze_encoder })
        }
        TaskName::SequenceClassification => Task::SequenceClassification,
        TaskName::TokenClassification => Task::TokenClassification,
        TaskName::ImageClassification => Task::ImageClassification,
        TaskName::Contrastive => Task::Contrastive,
        TaskName::InferenceForward => Task::InferenceForward,
        TaskName::Generate => Task::Generate,
        _ => return Err(JobError::new(format!("reference case `{}`: its task has a kind of its own", case.id))),
    };
    let trains = task.trains();
    let (low_rank, preconditioner) = told_of_case(case.optimizer, &case.optim_args, case.optim_target_modules)?;
    let transformers = case.transformers.parse::<TransformersVersion>();
    let transformers = transformers.map_err(|error| JobError::new(format!("reference case `{}`: {error}", case.id)))?;
    let images = CaseImages {
        per_row: case.images_per_row,
        size: case.image_size.as_ref(),
        freezes: [case.freeze_vision_tower, case.freeze_multi_modal_projector],
    };
    let (places_first, model) = images.see(&case.id, case.model)?;
    Ok(JobSpec {
        places_first: places_first || transformers.loops_over_experts(),
        micro_batch_size: case.micro_batch,
        seq_len: case.seq_len,
        max_new_tokens: case.max_new_tokens.unwrap_or(0),
        gradient_accumulation_steps: case.grad_accum,
        precision: case.precision.precision(),
        attention: case.attn,
        gradient_checkpointing: checkpoint_policy(case.gradient_checkpointing),
        use_reentrant: case.reentrant,
        optimizer: case.optimizer,
        low_rank,
        preconditioner,
        optimizer_in_backward: case.optimizer_in_backward,
        ema: case.ema,
        clip_grad_norm: clip_spec(case.clip_grad_norm),
        zero_grad_set_to_none: case.zero_grad_set_to_none,
        train_mode: case.train_mode && trains,
        lora: case.lora.map(Into::into),
        logits: LogitsPath { keep_outputs: case.keep_outputs, logits_to_keep: case.logits_to_keep, loss: case.loss },
        use_cache: case.use_cache,
        steps: case.steps,
        transformers,
        device_map: case.device_map,
        padded: Some(case.padded),
        ..plain_job(model, task)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::from_case;
    use super::*;
    use crate::job::{CheckpointPolicy, ClipSpec, LoraSpec, Precision};

    #[test]
    fn fills_in_the_scripts_defaults() {
        let job = from_case(&json!({"id": "tiny"})).unwrap();
        assert_eq!(job.model.name, "tiny");
        assert_eq!(job.model.model_type, "gpt2");
        assert_eq!((job.micro_batch_size, job.seq_len, job.steps), (1, 128, 2));
        assert_eq!(job.precision, Precision::Fp32);
        assert!(job.train_mode && job.zero_grad_set_to_none && !job.use_cache);
    }

    #[test]
    fn reads_every_field() {
        let job = from_case(&json!({
            "id": "all", "note": "x", "task": "causal_lm", "micro_batch": 4, "seq_len": 256, "precision": "amp_fp16",
            "model": {"family": "qwen2", "hidden_size": 896, "sliding_window": null}, "attn": "eager",
            "gradient_checkpointing": true, "optimizer": "adamw_fused", "grad_accum": 2, "clip_grad_norm": 1.0,
            "zero_grad_set_to_none": false, "lora": {"r": 8, "alpha": 16, "dropout": 0.1, "targets": ["q_proj"]},
            "use_cache": true, "keep_outputs": true, "train_mode": false, "logits_to_keep": 1, "max_new_tokens": 7,
            "steps": 3, "fp32_matmul": "high"
        }))
        .unwrap();
        assert_eq!(job.precision, Precision::AmpFp16);
        assert_eq!(job.attention, Attention::Eager);
        assert_eq!(job.gradient_checkpointing, CheckpointPolicy::EveryLayer);
        assert_eq!(job.optimizer, OptimizerKind::AdamwFused);
        assert_eq!(job.clip_grad_norm, Some(ClipSpec { max_norm: 1.0 }));
        assert_eq!(
            job.lora,
            Some(LoraSpec {
                r: 8,
                alpha: 16.0,
                dropout: 0.1,
                targets: vec!["q_proj".to_owned()],
                use_dora: false,
                modules_to_save: Vec::new()
            })
        );
        assert_eq!((job.max_new_tokens, job.logits.logits_to_keep, job.steps), (7, Some(1), 3));
        assert_eq!(job.model.config.size("hidden_size", 0), Ok(896));
        assert!(job.model.config.get("sliding_window").is_none());
    }

    #[test]
    fn does_not_train_for_inference() {
        for task in ["inference_forward", "generate"] {
            let job = from_case(&json!({"task": task})).unwrap();
            assert!(!job.train_mode, "{task}");
        }
    }
}
