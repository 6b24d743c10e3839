//! Cases of data-parallel and sharded training: one rank of a group, the first unless they say so.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::trainer::CaseQuantization;
use super::{
    CaseLora, CaseOffload, CasePrecision, checkpoint_policy, clip_spec, default_model, model_of_case, plain_job,
};
use crate::dtype::DType;
use crate::host::HostKind;
use crate::job::{
    BackwardPrefetch, Ddp, FlatInit, Framework, Fsdp1, Fsdp2, JobError, JobSpec, OptimizerKind, Parallel, Schedule,
    ShardInit, StageReplicas, StageWrapper, Strategy, Task, TensorPlan,
};

/// A case of kind `parallel`.
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
    /// The rank, or `DataParallel`'s GPU, that was measured.
    rank: u64,
    strategy: CaseStrategy,
    schedule: Schedule,
    stages_per_rank: u64,
    /// What is round each stage of a pipeline, over so many ranks.
    data_parallel: Option<CaseWrapper>,
    replicas: u64,
    precision: CasePrecision,
    reduce_dtype: ReduceDType,
    gradient_checkpointing: bool,
    optimizer: OptimizerKind,
    clip_grad_norm: Option<f64>,
    bucket_cap_mb: u64,
    gradient_as_bucket_view: bool,
    static_graph: bool,
    parameters_as_bucket_view: bool,
    reshard_after_forward: bool,
    replicate: u64,
    shard_root_only: bool,
    init: CaseInit,
    cpu_offload: Option<CaseOffload>,
    use_orig_params: bool,
    backward_prefetch: Option<BackwardPrefetch>,
    lora: Option<CaseLora>,
    quantization: Option<CaseQuantization>,
    #[serde(rename = "note")]
    _note: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CaseStrategy {
    Ddp,
    Fsdp1,
    Fsdp2,
    Zero1,
    Zero1Plain,
    Single,
    Dp,
    /// transformers' `tp_plan`.
    Tp,
    /// FSDP2 over ranks that all share the tokens of each row.
    Cp,
    /// PyTorch's schedules of stages; `grad_accum` micro-batches a step.
    Pp,
}

/// Where a model is, or when it gets its memory, before it is sharded.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CaseInit {
    Meta,
    Host,
    Full,
}

/// What a stage is in.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CaseWrapper {
    Ddp,
    Fsdp2,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReduceDType {
    Float32,
    Bfloat16,
}

impl Default for Case {
    fn default() -> Self {
        let ddp = Ddp::default();
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
            strategy: CaseStrategy::Ddp,
            schedule: Schedule::OneForwardOneBackward,
            stages_per_rank: 1,
            data_parallel: None,
            replicas: 1,
            precision: CasePrecision::Fp32,
            reduce_dtype: ReduceDType::Float32,
            gradient_checkpointing: false,
            optimizer: OptimizerKind::Adamw,
            clip_grad_norm: None,
            bucket_cap_mb: 25,
            gradient_as_bucket_view: ddp.gradient_as_bucket_view,
            static_graph: ddp.static_graph,
            parameters_as_bucket_view: false,
            reshard_after_forward: true,
            replicate: 1,
            shard_root_only: false,
            init: CaseInit::Meta,
            cpu_offload: None,
            use_orig_params: false,
            backward_prefetch: Some(BackwardPrefetch::Pre),
            lora: None,
            quantization: None,
            _note: String::new(),
        }
    }
}

impl Case {
    const fn strategy(&self) -> Strategy {
        let ddp = Ddp {
            bucket_cap_mb: Some(self.bucket_cap_mb),
            gradient_as_bucket_view: self.gradient_as_bucket_view,
            static_graph: self.static_graph,
            find_unused_parameters: false,
        };
        let parameters_as_bucket_view = self.parameters_as_bucket_view;
        match self.strategy {
            CaseStrategy::Single => Strategy::None,
            CaseStrategy::Pp => {
                let stages = self.world / self.replicas * self.stages_per_rank;
                let wrapper = match self.data_parallel {
                    None => None,
                    Some(CaseWrapper::Ddp) => Some(StageWrapper::Ddp(ddp)),
                    Some(CaseWrapper::Fsdp2) => Some(StageWrapper::Fsdp2(self.fsdp2())),
                };
                let replicas = match wrapper {
                    Some(wrapper) => Some(StageReplicas { ranks: self.replicas, wrapper }),
                    None => None,
                };
                Strategy::PipelineParallel { stages, schedule: self.schedule, replicas }
            }
            CaseStrategy::Tp => Strategy::TensorParallel { size: self.world, plan: TensorPlan::Transformers },
            CaseStrategy::Dp => Strategy::DataParallel,
            CaseStrategy::Ddp => Strategy::Ddp(ddp),
            CaseStrategy::Zero1 => Strategy::Zero1 { ddp: Some(ddp), parameters_as_bucket_view },
            CaseStrategy::Zero1Plain => Strategy::Zero1 { ddp: None, parameters_as_bucket_view },
            CaseStrategy::Fsdp1 => Strategy::Fsdp1(self.fsdp1()),
            CaseStrategy::Fsdp2 | CaseStrategy::Cp => Strategy::Fsdp2(self.fsdp2()),
        }
    }

    /// The dtypes of gathered parameters and of reduced gradients, where a policy says them.
    const fn mixed_precision(&self) -> (Option<DType>, Option<DType>) {
        let reduce_dtype = match self.reduce_dtype {
            ReduceDType::Float32 => DType::Float32,
            ReduceDType::Bfloat16 => DType::Bfloat16,
        };
        match self.precision {
            CasePrecision::MpBf16 | CasePrecision::Bf16Mp => (Some(DType::Bfloat16), Some(reduce_dtype)),
            _ => (None, None),
        }
    }

    const fn fsdp1(&self) -> Fsdp1 {
        let (param_dtype, reduce_dtype) = self.mixed_precision();
        Fsdp1 {
            param_dtype,
            reduce_dtype,
            buffer_dtype: param_dtype,
            reshard_after_forward: self.reshard_after_forward,
            replicate_size: self.replicate,
            use_orig_params: self.use_orig_params,
            backward_prefetch: match self.backward_prefetch {
                Some(prefetch) => prefetch,
                None => BackwardPrefetch::None,
            },
            shard_root_only: self.shard_root_only,
            sync_module_states: false,
            init: match self.init {
                CaseInit::Host | CaseInit::Meta => FlatInit::Host,
                CaseInit::Full => FlatInit::Device,
            },
            cpu_offload: self.cpu_offload.is_some(),
        }
    }

    const fn fsdp2(&self) -> Fsdp2 {
        let (param_dtype, reduce_dtype) = self.mixed_precision();
        Fsdp2 {
            param_dtype,
            reduce_dtype,
            reshard_after_forward: self.reshard_after_forward,
            replicate_size: self.replicate,
            token_ranks: if matches!(self.strategy, CaseStrategy::Cp) { self.world } else { 1 },
            shard_root_only: self.shard_root_only,
            init: match self.init {
                CaseInit::Full => ShardInit::Full,
                CaseInit::Meta | CaseInit::Host => ShardInit::Meta,
            },
            cpu_offload: match self.cpu_offload {
                Some(offload) => Some(HostKind::pinned(offload.pin_memory)),
                None => None,
            },
        }
    }
}

pub(super) fn job_of_case(case: Case) -> Result<JobSpec, JobError> {
    let parallel = Parallel { world_size: case.world, rank: case.rank, strategy: case.strategy() };
    Ok(JobSpec {
        micro_batch_size: case.micro_batch,
        seq_len: case.seq_len,
        gradient_accumulation_steps: case.grad_accum,
        materialized: !matches!(
            (case.strategy, case.init),
            (CaseStrategy::Fsdp2 | CaseStrategy::Cp, CaseInit::Meta) | (CaseStrategy::Fsdp1, CaseInit::Host)
        ) && case.data_parallel != Some(CaseWrapper::Fsdp2),
        precision: case.precision.precision(),
        gradient_checkpointing: checkpoint_policy(case.gradient_checkpointing),
        optimizer: case.optimizer,
        clip_grad_norm: clip_spec(case.clip_grad_norm),
        steps: case.steps,
        lora: case.lora.map(Into::into),
        device_map: case.quantization.is_some(),
        quantization: case.quantization.map(|quantization| quantization.spec(Framework::Trl)),
        parallel,
        ..plain_job(model_of_case(case.id, case.model)?, Task::CausalLm)
    })
}
