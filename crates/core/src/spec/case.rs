//! A reference case: the JSON object that the measuring script runs, read into the [`JobSpec`] it means.
//! Accuracy tests go through here, so a case's defaults are the script's, not those of a job file.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    Attention, CheckpointPolicy, ClipSpec, Fields, JobSpec, LogitsPath, LoraSpec, LossKernel, ModelSpec, OptimizerKind,
    Precision, SpecError, Task,
};
use crate::alloc::AllocatorConfig;
use crate::gpu::Gpu;

/// A case as written; a field left out has the script's default.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Case {
    id: String,
    model: Map<String, Value>,
    task: Task,
    micro_batch: u64,
    seq_len: u64,
    precision: CasePrecision,
    attn: Attention,
    gradient_checkpointing: bool,
    optimizer: OptimizerKind,
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
    #[serde(rename = "fp32_matmul")]
    _fp32_matmul: String,
    #[serde(rename = "note")]
    _note: String,
}

/// [`Precision`] under the names that cases use.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum CasePrecision {
    Fp32,
    Bf16,
    Fp16,
    AmpBf16,
    AmpFp16,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseLora {
    r: u64,
    #[serde(default, rename = "alpha")]
    _alpha: Option<f64>,
    #[serde(default)]
    dropout: f64,
    targets: Vec<String>,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            id: "case".to_owned(),
            model: Map::from_iter([("family".to_owned(), Value::from("gpt2"))]),
            task: Task::CausalLm,
            micro_batch: 1,
            seq_len: 128,
            precision: CasePrecision::Fp32,
            attn: Attention::Sdpa,
            gradient_checkpointing: false,
            optimizer: OptimizerKind::Adamw,
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
            _fp32_matmul: "highest".to_owned(),
            _note: String::new(),
        }
    }
}

/// The job that a reference case means, on the sm_90 GPU with 132 multiprocessors that the cases were measured on.
///
/// # Errors
/// When a field is unknown, has a wrong type, or the model names no `family`.
pub fn from_case(value: &Value) -> Result<JobSpec, SpecError> {
    if !value.is_object() {
        return Err(SpecError::new("reference case: must be a JSON object"));
    }
    let case = Case::deserialize(value).map_err(|error| SpecError::new(format!("reference case: {error}")))?;
    let trains = case.task.trains();
    Ok(JobSpec {
        model: model(case.id, case.model)?,
        task: case.task,
        micro_batch_size: case.micro_batch,
        seq_len: case.seq_len,
        max_new_tokens: case.max_new_tokens.unwrap_or(0),
        gradient_accumulation_steps: case.grad_accum,
        precision: precision(&case.precision),
        attention: case.attn,
        gradient_checkpointing: checkpointing(case.gradient_checkpointing),
        optimizer: case.optimizer,
        clip_grad_norm: case.clip_grad_norm.map(|max_norm| ClipSpec { max_norm }),
        zero_grad_set_to_none: case.zero_grad_set_to_none,
        train_mode: case.train_mode && trains,
        lora: case.lora.map(|lora| LoraSpec { r: lora.r, dropout: lora.dropout, targets: lora.targets }),
        logits: LogitsPath { keep_outputs: case.keep_outputs, logits_to_keep: case.logits_to_keep, loss: case.loss },
        use_cache: case.use_cache,
        steps: case.steps,
        allocator: AllocatorConfig::default(),
        gpu: reference_gpu(),
    })
}

/// `family` is Hugging Face's `model_type`; the other keys are fields of its config class.
fn model(name: String, mut config: Map<String, Value>) -> Result<ModelSpec, SpecError> {
    match config.remove("family") {
        Some(Value::String(model_type)) => Ok(ModelSpec { name, model_type, config: Fields(config) }),
        _ => Err(SpecError::new(format!("reference case `{name}`: `model` must name its `family`"))),
    }
}

const fn precision(precision: &CasePrecision) -> Precision {
    match precision {
        CasePrecision::Fp32 => Precision::Fp32,
        CasePrecision::Bf16 => Precision::Bf16,
        CasePrecision::Fp16 => Precision::Fp16,
        CasePrecision::AmpBf16 => Precision::AmpBf16,
        CasePrecision::AmpFp16 => Precision::AmpFp16,
    }
}

const fn checkpointing(on: bool) -> CheckpointPolicy {
    if on { CheckpointPolicy::EveryLayer } else { CheckpointPolicy::Off }
}

/// The device of the measurements: an H200's kernels and memory (139.80 GiB as PyTorch reports it).
fn reference_gpu() -> Gpu {
    Gpu {
        id: "reference".to_owned(),
        name: "sm_90 reference device".to_owned(),
        usable_bytes: 150_109_107_814,
        context_bytes: None,
        compute_capability: (9, 0),
        multiprocessors: 132,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        assert_eq!(job.lora, Some(LoraSpec { r: 8, dropout: 0.1, targets: vec!["q_proj".to_owned()] }));
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

    #[test]
    fn refuses_what_it_does_not_know() {
        let cases = [
            (json!({"batch": 1}), "unknown field `batch`"),
            (json!({"precision": "amp-bf16"}), "unknown variant `amp-bf16`"),
            (json!({"model": {"n_layer": 2}}), "must name its `family`"),
            (json!({"micro_batch": -1}), "invalid value: integer `-1`"),
            (json!([]), "must be a JSON object"),
            (json!(3), "must be a JSON object"),
        ];
        for (case, expected) in cases {
            let error = from_case(&case).unwrap_err().to_string();
            assert!(error.contains(expected), "{case}: {error}");
        }
    }
}
