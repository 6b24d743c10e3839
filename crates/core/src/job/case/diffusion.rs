//! Cases of diffusion training, as `testdata/steps/measure_diffusion.py` runs them.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{CaseLora, CasePrecision, checkpoint_policy, clip_spec, model_of_case, plain_job};
use crate::job::{DiffusionSpec, Ema, JobError, JobSpec, LoraSpec, OptimizerKind, Task};

/// A case of kind `diffusion`.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Case {
    id: String,
    #[serde(rename = "kind")]
    _kind: String,
    model: Map<String, Value>,
    precision: CasePrecision,
    batch: u64,
    resolution: u64,
    prompt_len: u64,
    lora: Option<CaseLora>,
    optimizer: OptimizerKind,
    gradient_checkpointing: bool,
    grad_accum: u64,
    max_grad_norm: f64,
    steps: u32,
    cache_latents: bool,
    cache_text_embeddings: bool,
    ema: Ema,
    #[serde(rename = "note")]
    _note: String,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            id: "case".to_owned(),
            _kind: String::new(),
            model: Map::new(),
            precision: CasePrecision::AmpBf16,
            batch: 1,
            resolution: 512,
            prompt_len: 77,
            lora: None,
            optimizer: OptimizerKind::Adamw,
            gradient_checkpointing: false,
            grad_accum: 1,
            max_grad_norm: 1.0,
            steps: 2,
            cache_latents: true,
            cache_text_embeddings: true,
            ema: Ema::Off,
            _note: String::new(),
        }
    }
}

pub(super) fn job_of_case(mut case: Case) -> Result<JobSpec, JobError> {
    if let Some(class) = case.model.remove("_class_name") {
        case.model.insert("family".to_owned(), class);
    }
    let model = model_of_case(case.id, case.model)?;
    let spec = DiffusionSpec {
        resolution: case.resolution,
        cache_latents: case.cache_latents,
        cache_text_embeddings: case.cache_text_embeddings,
    };
    let targets = model.facts().lora_targets;
    let lora = case.lora.map(|lora| {
        let named = LoraSpec::from(lora);
        if named.targets.is_empty() {
            return LoraSpec { targets: targets.iter().map(|target| (*target).to_owned()).collect(), ..named };
        }
        named
    });
    Ok(JobSpec {
        micro_batch_size: case.batch,
        seq_len: case.prompt_len,
        steps: case.steps,
        precision: case.precision.precision(),
        clip_grad_norm: clip_spec(Some(case.max_grad_norm)),
        gradient_checkpointing: checkpoint_policy(case.gradient_checkpointing),
        gradient_accumulation_steps: case.grad_accum,
        optimizer: case.optimizer,
        ema: case.ema,
        lora,
        ..plain_job(model, Task::Diffusion(spec))
    })
}
