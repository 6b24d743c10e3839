//! Cases of TRL's GKD trainer, as `testdata/steps/measure_gkd.py` runs them.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::rl::OptimizerName;
use super::sharding::{CaseSharding, ranks_of_trl};
use super::{CaseLora, CasePrecision, checkpoint_policy, clip_spec, model_of_case, plain_job};
use crate::job::{Divergence, GkdSpec, JobError, JobSpec, OnPolicy, OptimizerKind, TeacherDtype};
use crate::model_type::QWEN2;

/// A case of kind `trl_gkd`.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GkdCase {
    id: String,
    #[serde(rename = "kind")]
    _kind: String,
    model: Map<String, Value>,
    teacher: Option<Map<String, Value>>,
    teacher_dtype: TeacherDtype,
    precision: CasePrecision,
    batch: u64,
    prompt_len: u64,
    completion_len: u64,
    max_new_tokens: u64,
    lmbda: f64,
    beta: f64,
    seq_kd: bool,
    steps: u32,
    grad_accum: u64,
    gradient_checkpointing: bool,
    optim: Option<OptimizerName>,
    lora: Option<CaseLora>,
    liger: bool,
    padded: bool,
    max_grad_norm: f64,
    world: u64,
    sharded: Option<CaseSharding>,
    #[serde(rename = "note")]
    _note: String,
}

impl Default for GkdCase {
    fn default() -> Self {
        Self {
            id: "case".to_owned(),
            _kind: String::new(),
            model: Map::from_iter([("family".to_owned(), Value::from(QWEN2))]),
            teacher: None,
            teacher_dtype: TeacherDtype::Bf16,
            precision: CasePrecision::AmpBf16,
            batch: 4,
            prompt_len: 64,
            completion_len: 64,
            max_new_tokens: 64,
            lmbda: 0.5,
            beta: 0.5,
            seq_kd: false,
            steps: 2,
            grad_accum: 1,
            gradient_checkpointing: true,
            optim: None,
            lora: None,
            liger: false,
            padded: false,
            max_grad_norm: 1.0,
            world: 1,
            sharded: None,
            _note: String::new(),
        }
    }
}

pub(super) fn job_of_case(case: GkdCase) -> Result<JobSpec, JobError> {
    let teacher = case.teacher.unwrap_or_else(|| case.model.clone());
    let spec = GkdSpec {
        prompt_len: case.prompt_len,
        completion_len: case.completion_len,
        max_new_tokens: case.max_new_tokens,
        on_policy: OnPolicy::of_lmbda(case.lmbda),
        seq_kd: case.seq_kd,
        divergence: Divergence::of_beta(case.beta),
        teacher: model_of_case("teacher".to_owned(), teacher)?,
        teacher_dtype: case.teacher_dtype,
    };
    let precision = case.precision.precision();
    let parallel =
        ranks_of_trl((case.world, case.sharded), precision, case.lora.is_some(), case.gradient_checkpointing);
    Ok(JobSpec {
        parallel,
        micro_batch_size: case.batch,
        seq_len: case.prompt_len.saturating_add(case.completion_len),
        gradient_accumulation_steps: case.grad_accum,
        precision,
        gradient_checkpointing: checkpoint_policy(case.gradient_checkpointing),
        optimizer: case.optim.map_or(OptimizerKind::AdamwFused, OptimizerName::kind),
        clip_grad_norm: clip_spec(Some(case.max_grad_norm).filter(|norm| *norm > 0.0)),
        lora: case.lora.map(Into::into),
        liger_kernels: case.liger,
        padded: Some(case.padded),
        steps: case.steps,
        ..plain_job(model_of_case(case.id, case.model)?, spec.into())
    })
}
