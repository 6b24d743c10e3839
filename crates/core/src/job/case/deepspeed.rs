//! Cases of DeepSpeed's ZeRO: one rank of a group.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{CaseLora, CasePrecision, checkpoint_policy, clip_spec, default_model, model_of_case, plain_job};
use crate::job::{DeepSpeed, JobError, JobSpec, OptimizerKind, Parallel, Strategy, Task};

/// A case of kind `deepspeed`.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Case {
    id: String,
    #[serde(rename = "kind")]
    _kind: String,
    model: Map<String, Value>,
    micro_batch: u64,
    seq_len: u64,
    steps: u32,
    grad_accum: u64,
    world: u64,
    rank: u64,
    zero: Zero,
    precision: CasePrecision,
    gradient_checkpointing: bool,
    optimizer: OptimizerKind,
    clip_grad_norm: Option<f64>,
    lora: Option<CaseLora>,
}

/// `zero_optimization` of DeepSpeed's JSON.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Zero {
    stage: u8,
    reduce_bucket_size: u64,
    overlap_comm: bool,
    // What no key says yet.
    #[serde(rename = "sub_group_size")]
    _sub_group_size: u64,
    #[serde(rename = "stage3_prefetch_bucket_size")]
    _prefetch_bucket_size: u64,
    #[serde(rename = "stage3_param_persistence_threshold")]
    _param_persistence_threshold: u64,
    #[serde(rename = "stage3_max_live_parameters")]
    _max_live_parameters: u64,
    #[serde(rename = "stage3_max_reuse_distance")]
    _max_reuse_distance: u64,
}

impl Default for Zero {
    fn default() -> Self {
        Self {
            stage: 2,
            reduce_bucket_size: DeepSpeed::REDUCE_BUCKET_SIZE,
            overlap_comm: false,
            _sub_group_size: 0,
            _prefetch_bucket_size: 0,
            _param_persistence_threshold: 0,
            _max_live_parameters: 0,
            _max_reuse_distance: 0,
        }
    }
}

impl Default for Case {
    fn default() -> Self {
        Self {
            id: "case".to_owned(),
            _kind: String::new(),
            model: default_model(),
            micro_batch: 4,
            seq_len: 1024,
            steps: 3,
            grad_accum: 1,
            world: 4,
            rank: 0,
            zero: Zero::default(),
            precision: CasePrecision::Bf16,
            gradient_checkpointing: false,
            optimizer: OptimizerKind::Adamw,
            clip_grad_norm: None,
            lora: None,
        }
    }
}

pub(super) fn job_of_case(case: Case) -> Result<JobSpec, JobError> {
    let Zero { stage, reduce_bucket_size, overlap_comm, .. } = case.zero;
    let strategy = Strategy::DeepSpeed(DeepSpeed { stage, reduce_bucket_size, overlap_comm });
    Ok(JobSpec {
        micro_batch_size: case.micro_batch,
        seq_len: case.seq_len,
        gradient_accumulation_steps: case.grad_accum,
        precision: case.precision.precision(),
        gradient_checkpointing: checkpoint_policy(case.gradient_checkpointing),
        optimizer: case.optimizer,
        clip_grad_norm: clip_spec(case.clip_grad_norm),
        steps: case.steps,
        lora: case.lora.map(Into::into),
        parallel: Parallel { world_size: case.world, rank: case.rank, strategy },
        ..plain_job(model_of_case(case.id, case.model)?, Task::CausalLm)
    })
}
