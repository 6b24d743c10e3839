//! DeepSpeed's JSON (0.19, runtime/config.py and runtime/zero/config.py).

use serde_json::Value;
use tonnage_core::job::{Allowance, LeftOpen, keys};

use super::deepspeed_offload::{OFFLOADED_PARAMS, OFFLOADED_STATES, OFFLOADED_TO, offload_device};
use super::optimizer;
use super::words::{LOGS, OFFLOAD, SAVES, SCALAR, TIMES};
use crate::facts::{Dtype, Facts};
use crate::rule::Rule::{Free, Inside, InsideOr, Notes, Reads, Refuses};
use crate::rule::{Became, OFF, Row, Said};
use crate::tree::{is_null, is_on, plain_text};

const AUTO_ALONE: &str = "`auto` beside a reduce bucket that is said: DeepSpeed's default stands for it, the range allows a fifth of the peak";
const PERSISTENCE: &str = "a bound on all weights that stay whole is not simulated";
const WITHOUT_STAGE: &str = "without a stage of ZeRO nothing reads it";

/// Every key of DeepSpeed's JSON, nested ones by dots.
pub const ROWS: &[Row] = &[
    ("zero_optimization", Inside(ZERO)),
    ("train_batch_size", Reads(global_batch)),
    ("train_micro_batch_size_per_gpu", Reads(micro_batch)),
    ("gradient_accumulation_steps", Reads(super::trainer::accumulation_steps)),
    ("gradient_clipping", Reads(gradient_clipping)),
    ("bf16", InsideOr(BF16, super::trainer::bf16)),
    ("bfloat16", InsideOr(BF16, super::trainer::bf16)),
    ("fp16", InsideOr(FP16, super::trainer::fp16)),
    ("amp", Reads(apex_amp)),
    (
        "torch_autocast",
        Notes("DeepSpeed's own autocast was not measured; the range allows a fifth of the peak", Allowance::Fifth),
    ),
    ("data_types", Notes("another dtype of accumulated gradients was not measured", Allowance::Unknown)),
    ("communication_data_type", Free("what ranks send each other")),
    ("optimizer", Inside(OPTIMIZER)),
    ("scheduler", Free(SCALAR)),
    ("activation_checkpointing", Reads(activation_checkpointing)),
    ("zero_allow_untested_optimizer", Free("a check")),
    ("zero_force_ds_cpu_optimizer", Free("only offloaded states read it")),
    ("prescale_gradients", Free(SCALAR)),
    ("gradient_predivide_factor", Free(SCALAR)),
    ("sparse_gradients", Free("no layer of these models has sparse gradients")),
    ("steps_per_print", Free(LOGS)),
    ("wall_clock_breakdown", Free(LOGS)),
    ("dump_state", Free(LOGS)),
    ("memory_breakdown", Free(LOGS)),
    ("flops_profiler", Free(LOGS)),
    ("tensorboard", Free(LOGS)),
    ("wandb", Free(LOGS)),
    ("csv_monitor", Free(LOGS)),
    ("monitor_config", Free(LOGS)),
    ("comms_logger", Free(LOGS)),
    ("comms_config", Free(LOGS)),
    ("checkpoint", Free(SAVES)),
    ("checkpoint_config", Free(SAVES)),
    ("aio", Free(OFFLOADED_TO)),
    ("elasticity", Notes("a batch that follows the number of GPUs is not simulated", Allowance::Unknown)),
    ("compile", Notes(super::words::COMPILE, Allowance::Unknown)),
    ("compression_training", Refuses("compression is not simulated")),
    ("sparse_attention", Refuses("sparse attention is not simulated")),
    ("quantize_training", Refuses("quantized training is not simulated")),
    (
        "hybrid_engine",
        Notes("the hybrid engine holds weights for inference beside, which is not simulated", Allowance::Unknown),
    ),
    ("tensor_parallel", Notes("tensor parallelism under DeepSpeed is not simulated", Allowance::Unknown)),
    ("autotuning", Free("a search before the training")),
    ("data_efficiency", Free(super::words::DATA)),
    ("curriculum_learning", Free("rows are taken at their full length")),
    ("dataloader_drop_last", Free(super::words::DATA)),
    ("seed", Free(super::words::SEED)),
    ("load_universal_checkpoint", Free(SAVES)),
];

const BF16: &[Row] = &[
    ("enabled", Reads(|facts, said| weights_in(facts, said, Dtype::Bf16))),
    (
        "auto_cast",
        Notes("autocast under DeepSpeed was not measured; the range allows a fifth of the peak", Allowance::Fifth),
    ),
    ("immediate_grad_update", Free(TIMES)),
    ("check_grad_overflow", Free(SCALAR)),
    ("loss_scale", Free(SCALAR)),
    ("initial_scale_power", Free(SCALAR)),
    ("loss_scale_window", Free(SCALAR)),
    ("hysteresis", Free(SCALAR)),
    ("min_loss_scale", Free(SCALAR)),
    ("bf16_master_weights_and_grads", Notes("master weights of 16 bits take less than is estimated", Allowance::Less)),
    ("bf16_optimizer_states", Notes("states of 16 bits take less than is estimated", Allowance::Less)),
];

const FP16: &[Row] = &[
    ("enabled", Reads(|facts, said| weights_in(facts, said, Dtype::Fp16))),
    (
        "auto_cast",
        Notes("autocast under DeepSpeed was not measured; the range allows a fifth of the peak", Allowance::Fifth),
    ),
    ("loss_scale", Free(SCALAR)),
    ("loss_scale_window", Free(SCALAR)),
    ("initial_scale_power", Free(SCALAR)),
    ("consecutive_hysteresis", Free(SCALAR)),
    ("hysteresis", Free(SCALAR)),
    ("min_loss_scale", Free(SCALAR)),
    ("opt_level", Free("only apex reads it")),
    ("fp16_master_weights_and_grads", Notes("master weights of 16 bits take less than is estimated", Allowance::Less)),
];

const ZERO: &[Row] = &[
    ("stage", Reads(zero_stage)),
    ("offload_optimizer", InsideOr(OFFLOADED_STATES, offload_device)),
    ("offload_param", InsideOr(OFFLOADED_PARAMS, offload_device)),
    ("cpu_offload", Notes(OFFLOAD, Allowance::Less)),
    ("cpu_offload_params", Notes(OFFLOAD, Allowance::Less)),
    ("cpu_offload_use_pin_memory", Free("how the host holds what is offloaded")),
    ("allgather_bucket_size", Free("PyTorch gathers the flat weights where they lie")),
    ("reduce_bucket_size", Reads(reduce_bucket_size)),
    ("allgather_partitions", Free(TIMES)),
    ("reduce_scatter", Reads(other_gradients)),
    ("overlap_comm", Reads(overlap_comm)),
    ("contiguous_gradients", Reads(other_gradients)),
    ("round_robin_gradients", Free(TIMES)),
    ("sub_group_size", Reads(|facts, said| of_stage3(facts, said, keys::DEEPSPEED_SUB_GROUP_SIZE))),
    ("stage3_prefetch_bucket_size", Reads(prefetch_bucket_size)),
    ("stage3_param_persistence_threshold", Reads(param_persistence_threshold)),
    ("stage3_max_live_parameters", Reads(max_live_parameters)),
    ("stage3_max_reuse_distance", Reads(max_reuse_distance)),
    ("stage3_gather_16bit_weights_on_model_save", Free(SAVES)),
    ("stage3_gather_fp16_weights_on_model_save", Free(SAVES)),
    ("stage3_model_persistence_threshold", Reads(model_persistence_threshold)),
    ("stage3_use_all_reduce_for_fetch_params", Free(TIMES)),
    ("stage3_allgather_sequential", Free(TIMES)),
    ("prefetch_bucket_size", Reads(prefetch_bucket_size)),
    ("param_persistence_threshold", Reads(param_persistence_threshold)),
    ("max_live_parameters", Reads(max_live_parameters)),
    ("max_reuse_distance", Reads(max_reuse_distance)),
    ("gather_16bit_weights_on_model_save", Free(SAVES)),
    ("elastic_checkpoint", Free(SAVES)),
    ("load_from_fp32_weights", Free(SAVES)),
    ("ignore_unused_parameters", Free("a check")),
    ("legacy_stage1", Free(TIMES)),
    ("memory_efficient_linear", Reads(memory_efficient_linear)),
    ("use_multi_rank_bucket_allreduce", Free(TIMES)),
    ("pipeline_loading_checkpoint", Free(SAVES)),
    ("override_module_apply", Free("how weights reach the ranks")),
    ("module_granularity_threshold", Free(TIMES)),
    ("log_trace_cache_warnings", Free(LOGS)),
    ("zero_quantized_weights", Notes("ZeRO++ was not measured", Allowance::Unknown)),
    ("zero_quantized_nontrainable_weights", Notes("ZeRO++ was not measured", Allowance::Unknown)),
    ("zero_quantized_gradients", Notes("ZeRO++ was not measured", Allowance::Unknown)),
    ("zero_hpz_partition_size", Reads(hierarchical_partition)),
    ("mics_shard_size", Reads(hierarchical_partition)),
    ("mics_hierarchical_params_gather", Notes("MiCS was not measured", Allowance::Unknown)),
    ("leaf_module", Free("which modules are gathered whole")),
];

const OPTIMIZER: &[Row] =
    &[("type", Reads(optimizer_type)), ("params", Reads(optimizer_params)), ("legacy_fusion", Free(TIMES))];

/// The Trainer's `deepspeed`: a file's name, a table, or `true`.
pub fn of_trainer(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.value {
        value if !is_on(value) => Became::NoMemory(OFF),
        Value::Bool(_) => Became::NoMemory("accelerate's or DeepSpeed's own config says it"),
        _ => facts.became_named(said, "DeepSpeed's config"),
    }
}

/// ZeRO's stage; 0 is DDP's memory.
pub(super) fn zero_stage(facts: &mut Facts, said: &Said<'_>) -> Became {
    facts.has_deepspeed = true;
    match said.value.as_u64().or_else(|| plain_text(said.value).parse().ok()) {
        Some(0) => {
            facts.left_open.push(LeftOpen {
                text: "DeepSpeed without ZeRO is simulated as DDP; the range allows a fifth of the peak".to_owned(),
                allowance: Allowance::Fifth,
            });
            Became::NoMemory("what ranks hold is not divided")
        }
        Some(stage @ 1..=3) => {
            facts.set_text(keys::PARALLEL, "deepspeed", said.place);
            facts.set_text(keys::DEEPSPEED_STAGE, stage, said.place);
            Became::Used(keys::DEEPSPEED_STAGE)
        }
        _ => Became::Refused("ZeRO's stage is 0, 1, 2 or 3".to_owned()),
    }
}

/// A norm that gradients are clipped to; `auto` is the trainer's.
pub(super) fn gradient_clipping(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "auto" => Became::NoMemory(FILLED_IN),
        _ => super::trainer::clip_norm(facts, said),
    }
}

const FILLED_IN: &str = "`auto`: the trainer fills it in from its own arguments";

fn global_batch(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "auto" => Became::NoMemory(FILLED_IN),
        _ => facts.set_key(keys::GLOBAL_BATCH_SIZE, said.value, said.place),
    }
}

fn micro_batch(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "auto" => Became::NoMemory(FILLED_IN),
        _ => facts.set_key(keys::MICRO_BATCH_SIZE, said.value, said.place),
    }
}

/// Under DeepSpeed the weights themselves are of the dtype, beside fp32 masters.
fn weights_in(facts: &mut Facts, said: &Said<'_>, dtype: Dtype) -> Became {
    match said.word().as_str() {
        "auto" => Became::NoMemory(FILLED_IN),
        _ if is_on(said.value) => {
            facts.autocast = Some((Some(dtype), said.place.cloned()));
            Became::Used(keys::PRECISION)
        }
        _ => Became::NoMemory(OFF),
    }
}

fn apex_amp(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.get("enabled") {
        Some(on) if is_on(on) && on != "auto" => Became::Refused("apex's amp is not simulated".to_owned()),
        _ => Became::NoMemory(OFF),
    }
}

/// DeepSpeed's own checkpointing, which only a loop that calls it reads.
fn activation_checkpointing(_: &mut Facts, said: &Said<'_>) -> Became {
    let on = said.value.as_object().is_some_and(|table| table.values().any(is_on));
    if !on {
        return Became::NoMemory(OFF);
    }
    Became::Noted(
        "only code that calls DeepSpeed's checkpoint reads it, which is not simulated".to_owned(),
        Allowance::None,
    )
}

/// A size, which JSON writes as 5e8 too.
fn elements_of(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| plain_text(value).parse::<f64>().ok().map(|size| size as u64))
}

/// A size that stage 3 alone reads.
fn of_stage3(facts: &mut Facts, said: &Said<'_>, key: &'static str) -> Became {
    if said.other("stage").is_none_or(|stage| plain_text(&stage) != "3") {
        return Became::NoMemory("only stage 3 reads it");
    }
    let with_bucket = said.other("reduce_bucket_size").is_some_and(|size| plain_text(&size) == "auto");
    if is_null(said.value) || (said.word() == "auto" && with_bucket) {
        return Became::NoMemory("DeepSpeed's default, or what the trainer fills in as it does the reduce bucket");
    }
    if said.word() == "auto" {
        return Became::Noted(AUTO_ALONE.to_owned(), Allowance::Fifth);
    }
    let Some(elements) = elements_of(said.value) else { return Became::NotUnderstood };
    facts.set_text(key, elements, said.place);
    Became::Used(key)
}

fn prefetch_bucket_size(facts: &mut Facts, said: &Said<'_>) -> Became {
    of_stage3(facts, said, keys::DEEPSPEED_PREFETCH_BUCKET_SIZE)
}

fn param_persistence_threshold(facts: &mut Facts, said: &Said<'_>) -> Became {
    of_stage3(facts, said, keys::DEEPSPEED_PARAM_PERSISTENCE_THRESHOLD)
}

fn max_live_parameters(facts: &mut Facts, said: &Said<'_>) -> Became {
    of_stage3(facts, said, keys::DEEPSPEED_MAX_LIVE_PARAMETERS)
}

fn max_reuse_distance(facts: &mut Facts, said: &Said<'_>) -> Became {
    of_stage3(facts, said, keys::DEEPSPEED_MAX_REUSE_DISTANCE)
}

/// `model_persistence_threshold`, which is without bound unless a file says it.
fn model_persistence_threshold(_: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) || said.word() == "auto" {
        return Became::NoMemory("DeepSpeed's default");
    }
    Became::Noted(PERSISTENCE.to_owned(), Allowance::Fifth)
}

/// DeepSpeed's own linear layers, which stage 3 puts in unless a file says otherwise.
fn memory_efficient_linear(_: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) || is_on(said.value) {
        return Became::NoMemory("DeepSpeed's default");
    }
    Became::Noted("PyTorch's linear layers at stage 3 keep what they gathered".to_owned(), Allowance::Unknown)
}

/// Whether the stage beside a key divides anything: without one its table would be read as ZeRO's.
fn divides(said: &Said<'_>) -> bool {
    let stage = said.other("stage").and_then(|stage| plain_text(&stage).parse::<u8>().ok());
    stage.is_some_and(|stage| stage > 0)
}

/// Elements of the buffer that gradients are reduced from; `auto` is the hidden size squared.
fn reduce_bucket_size(facts: &mut Facts, said: &Said<'_>) -> Became {
    let elements = match said.word().as_str() {
        _ if !divides(said) => return Became::NoMemory(WITHOUT_STAGE),
        "auto" => 0,
        _ if is_null(said.value) => return Became::NoMemory(OFF),
        // JSON writes 5e8 as a number with a fraction.
        _ => match elements_of(said.value) {
            Some(elements) => elements,
            None => return Became::NotUnderstood,
        },
    };
    facts.set_text(keys::DEEPSPEED_REDUCE_BUCKET_SIZE, elements, said.place);
    Became::Used(keys::DEEPSPEED_REDUCE_BUCKET_SIZE)
}

fn overlap_comm(facts: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) || said.word() == "auto" {
        return Became::NoMemory("DeepSpeed's default");
    }
    if !divides(said) {
        return Became::NoMemory(WITHOUT_STAGE);
    }
    facts.set_text(keys::DEEPSPEED_OVERLAP_COMM, is_on(said.value), said.place);
    Became::Used(keys::DEEPSPEED_OVERLAP_COMM)
}

/// `contiguous_gradients` and `reduce_scatter`, which are on unless a file turns them off.
fn other_gradients(_: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) || is_on(said.value) {
        return Became::NoMemory("DeepSpeed's default");
    }
    Became::Noted("gradients outside one buffer, or reduced in whole, are not simulated".to_owned(), Allowance::Fifth)
}

fn hierarchical_partition(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_i64() {
        Some(..=1) | None => Became::NoMemory(OFF),
        _ => {
            Became::Noted("shards within a node were not measured: a rank may hold more".to_owned(), Allowance::Unknown)
        }
    }
}

fn optimizer_type(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "adamw" | "adam" => {
            facts.set_text(keys::OPTIMIZER, "adamw_fused", said.place);
            Became::Noted(
                "DeepSpeed's fused Adam keeps what PyTorch's does by its source, and was not measured; the range allows a fiftieth of \
                 the peak"
                    .to_owned(),
                Allowance::Fiftieth,
            )
        }
        _ => optimizer::read(facts, said),
    }
}

fn optimizer_params(facts: &mut Facts, said: &Said<'_>) -> Became {
    let known = |key: &String| {
        matches!(key.as_str(), "lr" | "betas" | "eps" | "weight_decay" | "torch_adam" | "adam_w_mode" | "momentum")
    };
    match said.value {
        Value::Object(table) if table.get("torch_adam").is_some_and(is_on) => Became::Noted(
            "`torch_adam` steps by PyTorch's own Adam, whose temporaries of the size of its weights are not simulated on shards; without it \
             DeepSpeed's fused one is"
                .to_owned(),
            Allowance::Unknown,
        ),
        Value::Object(table) if table.keys().all(known) => match table.get("weight_decay") {
            Some(rate) => optimizer::decay(facts, &Said { value: rate, ..*said }),
            None => Became::NoMemory(SCALAR),
        },
        value if is_null(value) => Became::NoMemory(OFF),
        _ => Became::NotUnderstood,
    }
}
