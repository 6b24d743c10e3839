//! Cases of TRL's DPO trainer, as `testdata/steps/measure_dpo.py` runs them.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::rl::OptimizerName;
use super::sharding::{CaseSharding, ranks_of_trl};
use super::trainer::{CaseQuantization, offload_of_trl};
use super::{CaseLora, CasePrecision, checkpoint_policy, clip_spec, model_of_case, plain_job};
use crate::job::{DpoSpec, Framework, JobError, JobSpec, OptimizerKind};
use crate::model_type::QWEN2;

/// A case of kind `trl_dpo`.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DpoCase {
    id: String,
    #[serde(rename = "kind")]
    _kind: String,
    model: Map<String, Value>,
    precision: CasePrecision,
    batch: u64,
    prompt_len: u64,
    completion_len: u64,
    steps: u32,
    grad_accum: u64,
    gradient_checkpointing: bool,
    optim: Option<OptimizerName>,
    lora: Option<CaseLora>,
    precompute: bool,
    liger: bool,
    max_grad_norm: f64,
    world: u64,
    sharded: Option<CaseSharding>,
    padded: bool,
    activation_offloading: bool,
    quantization: Option<CaseQuantization>,
    #[serde(rename = "note")]
    _note: String,
}

impl Default for DpoCase {
    fn default() -> Self {
        Self {
            id: "case".to_owned(),
            _kind: String::new(),
            model: Map::from_iter([("family".to_owned(), Value::from(QWEN2))]),
            precision: CasePrecision::AmpBf16,
            batch: 4,
            prompt_len: 64,
            completion_len: 64,
            steps: 2,
            grad_accum: 1,
            gradient_checkpointing: true,
            optim: None,
            lora: None,
            precompute: false,
            liger: false,
            max_grad_norm: 1.0,
            world: 1,
            sharded: None,
            padded: false,
            activation_offloading: false,
            quantization: None,
            _note: String::new(),
        }
    }
}

pub(super) fn job_of_case(case: DpoCase) -> Result<JobSpec, JobError> {
    let dpo = DpoSpec {
        prompt_len: case.prompt_len,
        completion_len: case.completion_len,
        precompute_ref_log_probs: case.precompute,
    };
    let is_peft = case.lora.is_some();
    Ok(JobSpec {
        micro_batch_size: case.batch,
        seq_len: case.prompt_len.saturating_add(case.completion_len),
        gradient_accumulation_steps: case.grad_accum,
        precision: case.precision.precision(),
        gradient_checkpointing: checkpoint_policy(case.gradient_checkpointing),
        optimizer: case.optim.map_or(OptimizerKind::AdamwFused, OptimizerName::kind),
        clip_grad_norm: clip_spec(Some(case.max_grad_norm).filter(|norm| *norm > 0.0)),
        lora: case.lora.map(Into::into),
        liger_kernels: case.liger,
        padded: Some(case.padded),
        activation_offload: offload_of_trl(case.activation_offloading),
        device_map: case.quantization.is_some(),
        quantization: case.quantization.map(|quantization| quantization.spec(Framework::Trl)),
        steps: case.steps,
        parallel: ranks_of_trl(
            (case.world, case.sharded),
            case.precision.precision(),
            is_peft,
            case.gradient_checkpointing,
        ),
        ..plain_job(model_of_case(case.id, case.model)?, dpo.into())
    })
}
