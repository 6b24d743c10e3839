//! Decides the keys of jobs on several GPUs, and whether the batch divides.

use crate::job::keys;
use serde_json::Value;

use super::chooser::Chooser;
use crate::dtype::DType;
use crate::host::HostKind;
use crate::job::{
    Ddp, DeepSpeed, Framework, Fsdp1, Fsdp2, JobError, Parallel, Schedule, StageReplicas, StageWrapper, Strategy,
    TaskName, TensorPlan,
};

/// Rows of a rank's pass: said, or for HRM, whose step is one pass, what `global_batch_size` leaves to each rank
/// (`config.global_batch_size // world_size`, pretrain.py).
pub(super) fn resolve_rows(choose: &mut Chooser<'_>, task: TaskName) -> Result<u64, JobError> {
    match (task, choose.said_size(keys::GLOBAL_BATCH_SIZE)) {
        (TaskName::Swarm, _) => Ok(0),
        (TaskName::Hrm, Some(global)) if !choose.is_said(keys::MICRO_BATCH_SIZE) => {
            let ranks = choose.said_size(keys::WORLD_SIZE).unwrap_or(1).max(1);
            if !global.is_multiple_of(ranks) {
                let problem = format!("`global_batch_size` {global} does not divide by `world_size` {ranks}");
                return Err(JobError::new(problem)
                    .about(&[keys::GLOBAL_BATCH_SIZE, keys::WORLD_SIZE])
                    .hint("every rank trains on as many rows"));
            }
            Ok(choose.size_or(keys::MICRO_BATCH_SIZE, global / ranks, "what `global_batch_size` leaves to each rank"))
        }
        _ => Ok(choose.take_size(keys::MICRO_BATCH_SIZE)),
    }
}

/// Micro-batches per optimizer step: said, or what the global batch leaves.
pub(super) fn resolve_accumulation(choose: &mut Chooser<'_>, micro_batch_size: u64) -> Result<u64, JobError> {
    let Some(global) = choose.said_size(keys::GLOBAL_BATCH_SIZE) else {
        return Ok(choose.take_size(keys::GRADIENT_ACCUMULATION_STEPS));
    };
    choose.take_value(keys::GLOBAL_BATCH_SIZE, Value::Null, "");
    // The ranks of one pipeline train on the same rows.
    let of_ranks = if is_pipeline(choose) { keys::PIPELINE_DATA_PARALLEL_SIZE } else { keys::WORLD_SIZE };
    let ranks = choose.said_size(of_ranks).unwrap_or(1);
    let rows = micro_batch_size.saturating_mul(ranks).max(1);
    let of_all = format!("`micro_batch_size` {micro_batch_size} x `{of_ranks}` {ranks} = {rows} rows");
    if choose.is_said(keys::GRADIENT_ACCUMULATION_STEPS) {
        let steps = choose.take_size(keys::GRADIENT_ACCUMULATION_STEPS);
        return if rows.saturating_mul(steps) == global {
            Ok(steps)
        } else {
            let product = rows.saturating_mul(steps);
            let problem = format!("`global_batch_size` {global} is not {of_all} x {steps} micro-batches = {product}");
            Err(JobError::new(problem)
                .about(&[keys::GLOBAL_BATCH_SIZE, keys::GRADIENT_ACCUMULATION_STEPS])
                .hint("leave out `gradient_accumulation_steps` to have it computed"))
        };
    }
    if !global.is_multiple_of(rows) {
        let problem = format!("`global_batch_size` {global} does not divide by {of_all}");
        let below = (global / rows).saturating_mul(rows);
        let near = if below > 0 { format!("{below} or {}", below + rows) } else { rows.to_string() };
        return Err(JobError::new(problem)
            .about(&[keys::GLOBAL_BATCH_SIZE])
            .hint(format!("set `global_batch_size` to {near}")));
    }
    Ok(choose.size_or(keys::GRADIENT_ACCUMULATION_STEPS, global / rows, "what `global_batch_size` leaves to each rank"))
}

/// What is spread over the ranks; nothing when no key says so. `trainer_looks`: whether a trainer asks DDP to look for unused
/// parameters; `hidden_size`: the model's width.
pub(super) fn resolve_parallel(
    choose: &mut Chooser<'_>,
    task: TaskName,
    (framework, trainer_looks): (Framework, bool),
    hidden_size: Option<u64>,
) -> Result<Parallel, JobError> {
    // A pipeline's stages may be in `ddp` or `fsdp2`, whose tables are beside its own.
    let tables = ["pipeline", "ddp", "zero1", "fsdp1", "fsdp2", "deepspeed", "tensor"];
    let table = tables.into_iter().find(|table| choose.settings.has_table(table));
    if !choose.is_said(keys::WORLD_SIZE) && !choose.is_said(keys::PARALLEL) && table.is_none() {
        return Ok(Parallel::default());
    }
    let world_size = choose.take_size(keys::WORLD_SIZE);
    let several = if task == TaskName::Hrm { "all_reduce" } else { "ddp" };
    let default = table.unwrap_or(if world_size > 1 { several } else { "none" });
    let strategy: String = choose.word_or(keys::PARALLEL, default, "what its table or more than one rank asks for")?;
    let strategy = match strategy.as_str() {
        "data_parallel" => Strategy::DataParallel,
        "all_reduce" => Strategy::AllReduce,
        "ddp" => Strategy::Ddp(resolve_ddp(choose, trainer_looks)),
        "zero1" => resolve_zero1(choose, trainer_looks),
        "fsdp1" => Strategy::Fsdp1(resolve_fsdp1(choose)?),
        "fsdp2" => Strategy::Fsdp2(resolve_fsdp2(choose)?),
        "deepspeed" => Strategy::DeepSpeed(resolve_deepspeed(choose, hidden_size)),
        "tensor" => Strategy::TensorParallel { size: world_size, plan: resolve_tensor_plan(choose, framework)? },
        "pipeline" => resolve_pipeline(choose, world_size, trainer_looks)?,
        _ if world_size > 1 => {
            let problem = format!("`world_size` is {world_size}, but parallel = \"none\" spreads nothing");
            return Err(JobError::new(problem)
                .about(&[keys::WORLD_SIZE, keys::PARALLEL])
                .hint("set parallel = \"ddp\" or another strategy"));
        }
        _ => Strategy::None,
    };
    Ok(Parallel { world_size, strategy, ..Parallel::default() })
}

fn resolve_pipeline(choose: &mut Chooser<'_>, world_size: u64, trainer_looks: bool) -> Result<Strategy, JobError> {
    let schedule = choose.take_word(keys::PIPELINE_SCHEDULE)?;
    let (default, why) = match schedule {
        Schedule::Interleaved => (2, "the fewest that the schedule interleaves"),
        Schedule::GPipe | Schedule::OneForwardOneBackward => (1, "what the schedule takes"),
    };
    let of_rank = choose.size_or(keys::PIPELINE_STAGES_PER_RANK, default, why);
    let replicas = resolve_replicas(choose, trainer_looks)?;
    // That they divide is checked with the job.
    let ranks = world_size / replicas.map_or(1, |replicas| replicas.ranks);
    Ok(Strategy::PipelineParallel { stages: ranks.saturating_mul(of_rank), schedule, replicas })
}

/// The ranks that have the same stage, where they are more than one.
fn resolve_replicas(choose: &mut Chooser<'_>, trainer_looks: bool) -> Result<Option<StageReplicas>, JobError> {
    let ranks = choose.take_size(keys::PIPELINE_DATA_PARALLEL_SIZE);
    if ranks == 1 {
        return Ok(None);
    }
    let wrapper: String = choose.take_word(keys::PIPELINE_DATA_PARALLEL)?;
    let wrapper = match wrapper.as_str() {
        "fsdp2" => StageWrapper::Fsdp2(resolve_fsdp2(choose)?),
        _ => StageWrapper::Ddp(resolve_ddp(choose, trainer_looks)),
    };
    Ok(Some(StageReplicas { ranks, wrapper }))
}

fn is_pipeline(choose: &Chooser<'_>) -> bool {
    match choose.settings.get(keys::PARALLEL) {
        Some(setting) => setting.value.as_str() == Some("pipeline"),
        None => choose.settings.has_table("pipeline"),
    }
}

/// Whether the job's parameters are FSDP's shards, before the turn of its keys comes.
pub(super) fn is_fsdp(choose: &Chooser<'_>) -> bool {
    ["fsdp1", "fsdp2"].into_iter().any(|name| match choose.settings.get(keys::PARALLEL) {
        Some(setting) => setting.value.as_str() == Some(name),
        None => choose.settings.has_table(name),
    })
}

fn resolve_tensor_plan(choose: &mut Chooser<'_>, framework: Framework) -> Result<TensorPlan, JobError> {
    let (plan, whose) = match framework {
        Framework::Trainer | Framework::Trl => (keys::TRANSFORMERS, "what its models load by in the Trainer"),
        _ => ("megatron", "what loops of one's own divide with"),
    };
    choose.word_or(keys::TENSOR_PLAN, plan, whose)
}

fn resolve_ddp(choose: &mut Chooser<'_>, trainer_looks: bool) -> Ddp {
    let bucket_cap_mb = choose.size_if_said(keys::DDP_BUCKET_CAP_MB, "PyTorch's: 25, the first bucket 1");
    let gradient_as_bucket_view = choose.take_switch(keys::DDP_GRADIENT_AS_BUCKET_VIEW);
    let static_graph = choose.take_switch(keys::DDP_STATIC_GRAPH);
    let whose = if trainer_looks { "Hugging Face Trainer's ddp_find_unused_parameters" } else { "PyTorch's default" };
    let find_unused_parameters = choose.switch_or(keys::DDP_FIND_UNUSED_PARAMETERS, trainer_looks, whose);
    Ddp { bucket_cap_mb, gradient_as_bucket_view, static_graph, find_unused_parameters }
}

fn resolve_zero1(choose: &mut Chooser<'_>, trainer_looks: bool) -> Strategy {
    let ddp = choose.take_switch(keys::ZERO1_DDP).then(|| resolve_ddp(choose, trainer_looks));
    Strategy::Zero1 { ddp, parameters_as_bucket_view: choose.take_switch(keys::ZERO1_PARAMETERS_AS_BUCKET_VIEW) }
}

fn resolve_offload_param(choose: &mut Chooser<'_>) -> Option<HostKind> {
    let offloads = choose.take_switch(keys::DEEPSPEED_OFFLOAD_PARAM);
    offloads.then(|| HostKind::pinned(choose.take_switch(keys::DEEPSPEED_OFFLOAD_PARAM_PIN_MEMORY)))
}

fn resolve_deepspeed(choose: &mut Chooser<'_>, hidden_size: Option<u64>) -> DeepSpeed {
    let stage = u8::try_from(choose.take_size(keys::DEEPSPEED_STAGE)).unwrap_or(u8::MAX);
    let own = DeepSpeed::stage(stage);
    let elements = choose.take_size(keys::DEEPSPEED_REDUCE_BUCKET_SIZE);
    let auto = hidden_size.filter(|_| elements == 0).map(|width| DeepSpeed::auto(stage, width));
    let reduce_bucket_size = match elements {
        0 => auto.unwrap_or(own).reduce_bucket_size,
        elements => elements,
    };
    let overlap_comm = choose.switch_or(keys::DEEPSPEED_OVERLAP_COMM, own.overlap_comm, "DeepSpeed's default");
    let offloads = choose.take_switch(keys::DEEPSPEED_OFFLOAD_OPTIMIZER);
    let pin_memory = offloads && choose.take_switch(keys::DEEPSPEED_OFFLOAD_PIN_MEMORY);
    let offload_optimizer = offloads.then(|| HostKind::pinned(pin_memory));
    let options = DeepSpeed { reduce_bucket_size, overlap_comm, offload_optimizer, ..auto.unwrap_or(own) };
    if stage != 3 {
        return options;
    }
    let whose = if auto.is_some() { "the Trainer's `auto`" } else { "DeepSpeed's default" };
    DeepSpeed {
        prefetch_bucket_size: choose.size_or(keys::DEEPSPEED_PREFETCH_BUCKET_SIZE, options.prefetch_bucket_size, whose),
        param_persistence_threshold: choose.size_or(
            keys::DEEPSPEED_PARAM_PERSISTENCE_THRESHOLD,
            options.param_persistence_threshold,
            whose,
        ),
        max_live_parameters: choose.take_size(keys::DEEPSPEED_MAX_LIVE_PARAMETERS),
        max_reuse_distance: choose.take_size(keys::DEEPSPEED_MAX_REUSE_DISTANCE),
        sub_group_size: choose.take_size(keys::DEEPSPEED_SUB_GROUP_SIZE),
        offload_param: resolve_offload_param(choose),
        ..options
    }
}

const PACKED: &str = "weights are packed on the device before they are sharded";

fn resolve_fsdp1(choose: &mut Chooser<'_>) -> Result<Fsdp1, JobError> {
    let param_dtype = resolve_dtype(choose, keys::FSDP1_PARAM_DTYPE, "the weights' own");
    let reduce_dtype = resolve_dtype(choose, keys::FSDP1_REDUCE_DTYPE, "that of gathered parameters");
    let sharding_strategy: String = choose.take_word(keys::FSDP1_SHARDING_STRATEGY)?;
    let (init, why) =
        if choose.is_said(keys::QUANTIZATION) { ("device", PACKED) } else { ("host", "what accelerate does") };
    let init = choose.word_or(keys::FSDP1_INIT, init, why)?;
    Ok(Fsdp1 {
        param_dtype,
        reduce_dtype,
        buffer_dtype: param_dtype,
        reshard_after_forward: sharding_strategy == "full_shard",
        replicate_size: choose.take_size(keys::FSDP1_REPLICATE_SIZE),
        use_orig_params: choose.take_switch(keys::FSDP1_USE_ORIG_PARAMS),
        backward_prefetch: choose.take_word(keys::FSDP1_BACKWARD_PREFETCH)?,
        shard_root_only: choose.take_switch(keys::FSDP1_SHARD_ROOT_ONLY),
        sync_module_states: choose.take_switch(keys::FSDP1_SYNC_MODULE_STATES),
        init,
        cpu_offload: choose.take_switch(keys::FSDP1_CPU_OFFLOAD),
    })
}

fn resolve_fsdp2(choose: &mut Chooser<'_>) -> Result<Fsdp2, JobError> {
    let param_dtype = resolve_dtype(choose, keys::FSDP2_PARAM_DTYPE, "the weights' own");
    let reduce_dtype = resolve_dtype(choose, keys::FSDP2_REDUCE_DTYPE, "the gradients' own");
    let reshard_after_forward = choose.take_switch(keys::FSDP2_RESHARD_AFTER_FORWARD);
    let replicate_size = choose.take_size(keys::FSDP2_REPLICATE_SIZE);
    let token_ranks = choose.take_size(keys::FSDP2_CONTEXT_PARALLEL_SIZE);
    let shard_root_only = choose.take_switch(keys::FSDP2_SHARD_ROOT_ONLY);
    let (init, why) =
        if choose.is_said(keys::QUANTIZATION) { ("full", PACKED) } else { ("meta", "what large models need") };
    let init = choose.word_or(keys::FSDP2_INIT, init, why)?;
    let cpu_offload = choose.take_switch(keys::FSDP2_CPU_OFFLOAD);
    let pin_memory = cpu_offload && choose.take_switch(keys::FSDP2_CPU_OFFLOAD_PIN_MEMORY);
    let cpu_offload = cpu_offload.then(|| HostKind::pinned(pin_memory));
    Ok(Fsdp2 {
        param_dtype,
        reduce_dtype,
        reshard_after_forward,
        replicate_size,
        token_ranks,
        shard_root_only,
        init,
        cpu_offload,
    })
}

fn resolve_dtype(choose: &mut Chooser<'_>, key: &str, rule: &str) -> Option<DType> {
    match choose.take_value(key, Value::Null, rule).as_str()? {
        "fp32" => Some(DType::Float32),
        "bf16" => Some(DType::Bfloat16),
        "fp16" => Some(DType::Float16),
        _ => None,
    }
}
