//! Cases of TRL's reward trainer, as `testdata/steps/measure_reward.py` runs them.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::rl::OptimizerName;
use super::sharding::{CaseSharding, ranks_of_trl};
use super::trainer::offload_of_trl;
use super::{CaseLora, CasePrecision, checkpoint_policy, clip_spec, model_of_case, plain_job};
use crate::job::{Attention, JobError, JobSpec, OptimizerKind, RewardSpec};
use crate::model_type::QWEN2;

/// A case of kind `trl_reward`.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RewardCase {
    id: String,
    #[serde(rename = "kind")]
    _kind: String,
    model: Map<String, Value>,
    precision: CasePrecision,
    batch: u64,
    seq_len: u64,
    steps: u32,
    grad_accum: u64,
    gradient_checkpointing: bool,
    optim: Option<OptimizerName>,
    lora: Option<CaseLora>,
    center_rewards_coefficient: f64,
    disable_dropout: bool,
    attn: Attention,
    max_grad_norm: f64,
    world: u64,
    sharded: Option<CaseSharding>,
    padded: bool,
    activation_offloading: bool,
    #[serde(rename = "note")]
    _note: String,
}

impl Default for RewardCase {
    fn default() -> Self {
        Self {
            id: "case".to_owned(),
            _kind: String::new(),
            model: Map::from_iter([("family".to_owned(), Value::from(QWEN2))]),
            precision: CasePrecision::AmpBf16,
            batch: 4,
            seq_len: 128,
            steps: 2,
            grad_accum: 1,
            gradient_checkpointing: true,
            optim: None,
            lora: None,
            center_rewards_coefficient: 0.0,
            disable_dropout: true,
            attn: Attention::Sdpa,
            max_grad_norm: 1.0,
            world: 1,
            sharded: None,
            padded: false,
            activation_offloading: false,
            _note: String::new(),
        }
    }
}

pub(super) fn job_of_case(case: RewardCase) -> Result<JobSpec, JobError> {
    let reward = RewardSpec {
        center_rewards_coefficient: case.center_rewards_coefficient,
        disable_dropout: case.disable_dropout,
    };
    let is_peft = case.lora.is_some();
    Ok(JobSpec {
        micro_batch_size: case.batch,
        seq_len: case.seq_len,
        gradient_accumulation_steps: case.grad_accum,
        precision: case.precision.precision(),
        attention: case.attn,
        gradient_checkpointing: checkpoint_policy(case.gradient_checkpointing),
        optimizer: case.optim.map_or(OptimizerKind::AdamwFused, OptimizerName::kind),
        clip_grad_norm: clip_spec(Some(case.max_grad_norm).filter(|norm| *norm > 0.0)),
        lora: case.lora.map(Into::into),
        padded: Some(case.padded),
        activation_offload: offload_of_trl(case.activation_offloading),
        steps: case.steps,
        parallel: ranks_of_trl(
            (case.world, case.sharded),
            case.precision.precision(),
            is_peft,
            case.gradient_checkpointing,
        ),
        ..plain_job(model_of_case(case.id, case.model)?, reward.into())
    })
}
