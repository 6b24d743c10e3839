//! accelerate 1.15's config file, as `accelerate config` writes it.

use serde_json::Value;
use tonnage_core::job::{Allowance, keys};

use super::words::{COMPILE, LAUNCH};
use super::{deepspeed, deepspeed_offload, fsdp};
use crate::facts::{Dtype, Facts};
use crate::rule::Rule::{Free, Inside, Notes, Reads, Refuses};
use crate::rule::{Became, OFF, Row, Said};
use crate::tree::is_null;

/// Every key of a config of `accelerate launch`.
pub const ROWS: &[Row] = &[
    ("compute_environment", Reads(compute_environment)),
    ("distributed_type", Reads(distributed_type)),
    ("num_processes", Reads(process_count)),
    ("num_machines", Free("processes of all machines are counted")),
    ("mixed_precision", Reads(mixed_precision)),
    ("use_cpu", Refuses("it trains on the CPU: no GPU's memory is asked for")),
    ("gradient_accumulation_steps", Reads(super::trainer::accumulation_steps)),
    ("fsdp_config", Inside(fsdp::ROWS)),
    ("deepspeed_config", Inside(DEEPSPEED)),
    ("dynamo_config", Reads(dynamo_table)),
    ("dynamo_backend", Reads(dynamo_backend)),
    ("megatron_lm_config", Refuses("Megatron-LM is not simulated")),
    ("fp8_config", Refuses("fp8 is not simulated")),
    ("parallelism_config", Notes("a mesh of parallel dimensions is not simulated", Allowance::Unknown)),
    ("tp_config", Notes("tensor parallelism by accelerate is not simulated", Allowance::Unknown)),
    ("ipex_config", Refuses("Intel's extension is not simulated")),
    ("mpirun_config", Free(LAUNCH)),
    ("debug", Free(LAUNCH)),
    ("downcast_bf16", Free("only TPUs read it")),
    ("enable_cpu_affinity", Free("which processor cores a process takes")),
    ("machine_rank", Free(LAUNCH)),
    ("main_process_ip", Free(LAUNCH)),
    ("main_process_port", Free(LAUNCH)),
    ("main_training_function", Free(LAUNCH)),
    ("rdzv_backend", Free(LAUNCH)),
    ("same_network", Free(LAUNCH)),
    ("deepspeed_hostfile", Free(LAUNCH)),
    ("gpu_ids", Free(LAUNCH)),
    ("tpu_env", Free(LAUNCH)),
    ("tpu_use_cluster", Free(LAUNCH)),
    ("tpu_use_sudo", Free(LAUNCH)),
    ("tpu_name", Free(LAUNCH)),
    ("tpu_zone", Free(LAUNCH)),
    ("command_file", Free(LAUNCH)),
    ("commands", Free(LAUNCH)),
];

/// The table of DeepSpeed in it.
const DEEPSPEED: &[Row] = &[
    ("zero_stage", Reads(deepspeed::zero_stage)),
    ("offload_optimizer_device", Reads(deepspeed_offload::offload_states)),
    ("offload_param_device", Reads(deepspeed_offload::offload_params)),
    ("offload_optimizer_nvme_path", Free(deepspeed_offload::OFFLOADED_TO)),
    ("offload_param_nvme_path", Free(deepspeed_offload::OFFLOADED_TO)),
    ("zero3_init_flag", Free("how weights reach the ranks")),
    ("zero3_save_16bit_model", Free(super::words::SAVES)),
    ("gradient_accumulation_steps", Reads(super::trainer::accumulation_steps)),
    ("gradient_clipping", Reads(deepspeed::gradient_clipping)),
    ("deepspeed_multinode_launcher", Free(LAUNCH)),
    ("deepspeed_hostfile", Free(LAUNCH)),
    ("deepspeed_exclusion_filter", Free(LAUNCH)),
    ("deepspeed_inclusion_filter", Free(LAUNCH)),
    ("deepspeed_moe_layer_cls_names", Free("which layers are whole")),
    ("deepspeed_config_file", Reads(|facts, said| facts.became_named(said, "DeepSpeed's config"))),
];

fn compute_environment(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        word if word.contains("sagemaker") => {
            Became::Refused("what SageMaker starts is not told by this file".to_owned())
        }
        _ => Became::NoMemory(LAUNCH),
    }
}

fn distributed_type(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "no" => Became::NoMemory("one process"),
        "multi_gpu" => {
            let ranks = said.other("num_processes").and_then(|value| value.as_u64()).unwrap_or(1);
            if ranks > 1 {
                facts.set_text(keys::PARALLEL, "ddp", said.place);
            }
            Became::Used(keys::PARALLEL)
        }
        "fsdp" => {
            fsdp::shard_job(facts, fsdp::version_of_fsdp(said.other("fsdp_config").as_ref()).unwrap_or(1), said);
            shard_dtypes(facts, said);
            Became::Used(keys::PARALLEL)
        }
        "deepspeed" => {
            if said.other("deepspeed_config").is_none() {
                return Became::Refused("its table `deepspeed_config` is not there".to_owned());
            }
            facts.has_deepspeed = true;
            Became::Used(keys::PARALLEL)
        }
        other => Became::Refused(format!("`{}` is not simulated", crate::text::brief_text(other))),
    }
}

/// Under mixed precision accelerate gathers and reduces in its dtype (utils/dataclasses.py, `set_mixed_precision`).
fn shard_dtypes(facts: &mut Facts, said: &Said<'_>) {
    let dtype = match said.other("mixed_precision").as_ref().and_then(Value::as_str) {
        Some("bf16") => "bf16",
        Some("fp16") => "fp16",
        _ => return,
    };
    facts.set_text(keys::FSDP2_PARAM_DTYPE, dtype, said.place);
    facts.set_text(keys::FSDP2_REDUCE_DTYPE, dtype, said.place);
}

fn process_count(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_u64() {
        Some(0) | None => Became::Refused("a number of processes is a whole number from 1".to_owned()),
        Some(1) => Became::NoMemory("one process"),
        Some(_) => facts.set_key(keys::WORLD_SIZE, said.value, said.place),
    }
}

/// `mixed_precision`: autocast, which a training config of its own goes before.
pub(super) fn mixed_precision(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "no" | "null" | "false" => Became::NoMemory(OFF),
        "bf16" => facts.take_autocast(Dtype::Bf16, true, said.place),
        "fp16" => facts.take_autocast(Dtype::Fp16, true, said.place),
        other => Became::Refused(format!("`{}` is not simulated", crate::text::brief_text(other))),
    }
}

/// A backend of torch.compile.
pub(super) fn dynamo_backend(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "no" | "null" | "false" | "eager" => Became::NoMemory(OFF),
        _ => Became::Noted(COMPILE.to_owned(), Allowance::Unknown),
    }
}

fn dynamo_table(_: &mut Facts, said: &Said<'_>) -> Became {
    let backend = said.value.get("dynamo_backend").and_then(Value::as_str).map(str::to_lowercase);
    match backend.as_deref() {
        None | Some("no" | "eager") if is_null(said.value) || said.value.is_object() => Became::NoMemory(OFF),
        _ => Became::Noted(COMPILE.to_owned(), Allowance::Unknown),
    }
}
