//! Cases of DeepSpeed's ZeRO: one rank of a group.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    CaseLora, CaseOffload, CasePrecision, checkpoint_policy, clip_spec, default_model, model_of_case, plain_job,
};
use crate::host::HostKind;
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
pub(super) struct Zero {
    stage: u8,
    reduce_bucket_size: u64,
    overlap_comm: Option<bool>,
    sub_group_size: u64,
    stage3_prefetch_bucket_size: u64,
    stage3_param_persistence_threshold: u64,
    stage3_max_live_parameters: u64,
    stage3_max_reuse_distance: u64,
    offload_optimizer: Option<CaseOffload>,
    offload_param: Option<CaseOffload>,
}

impl Default for Zero {
    fn default() -> Self {
        let DeepSpeed { stage, reduce_bucket_size, sub_group_size, .. } = DeepSpeed::stage(2);
        Self {
            stage,
            reduce_bucket_size,
            overlap_comm: None,
            sub_group_size,
            stage3_prefetch_bucket_size: DeepSpeed::PREFETCH_BUCKET_SIZE,
            stage3_param_persistence_threshold: DeepSpeed::PARAM_PERSISTENCE_THRESHOLD,
            stage3_max_live_parameters: DeepSpeed::MAX_LIVE_PARAMETERS,
            stage3_max_reuse_distance: DeepSpeed::MAX_REUSE_DISTANCE,
            offload_optimizer: None,
            offload_param: None,
        }
    }
}

impl Zero {
    pub(super) fn options(self) -> DeepSpeed {
        DeepSpeed {
            stage: self.stage,
            reduce_bucket_size: self.reduce_bucket_size,
            overlap_comm: self.overlap_comm.unwrap_or(self.stage == 3),
            prefetch_bucket_size: self.stage3_prefetch_bucket_size,
            param_persistence_threshold: self.stage3_param_persistence_threshold,
            max_live_parameters: self.stage3_max_live_parameters,
            max_reuse_distance: self.stage3_max_reuse_distance,
            sub_group_size: self.sub_group_size,
            offload_optimizer: self.offload_optimizer.map(|offload| HostKind::pinned(offload.pin_memory)),
            offload_param: self.offload_param.map(|offload| HostKind::pinned(offload.pin_memory)),
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
    let strategy = Strategy::DeepSpeed(case.zero.options());
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
