//! torchtitan's TOML (config/job_config.py up to 0.2, before configs became Python).

use tonnage_core::job::{Allowance, LeftOpen, keys};

use super::words::{COMPILE, DATA, EVAL, LAUNCH, LOGS, NAME, SAVES, SCALAR, SEED, TOKENS};
use crate::facts::{Dtype, Facts, Weights};
use crate::rule::Rule::{Free, Inside, Notes, Reads, Refuses, Sets};
use crate::rule::{Became, OFF, Row, Said};
use crate::tree::{Entry, find_entry, is_on};

const MESH: &str = "several parallel dimensions at once are not simulated: a rank may hold more or less";

/// Every key of torchtitan's tables, by dots.
pub const ROWS: &[Row] = &[
    (
        "job",
        Inside(&[
            ("dump_folder", Free(SAVES)),
            ("description", Free(NAME)),
            ("use_for_integration_test", Free(NAME)),
            ("print_args", Free(LOGS)),
            ("print_config", Free(LOGS)),
            ("save_config_file", Free(SAVES)),
            ("config_file", Free(NAME)),
            ("custom_config_module", Free(NAME)),
        ]),
    ),
    ("profiling", Free(LOGS)),
    ("metrics", Free(LOGS)),
    ("comm", Free(LAUNCH)),
    (
        "fault_tolerance",
        Inside(&[
            ("enable", Notes("torchft's buffers are not simulated", Allowance::Unknown)),
            ("group_size", Free(LAUNCH)),
            ("replica_id", Free(LAUNCH)),
            ("process_group", Free(LAUNCH)),
            ("semi_sync_method", Free(LAUNCH)),
        ]),
    ),
    ("checkpoint", Free(SAVES)),
    ("validation", Free(EVAL)),
    ("lr_scheduler", Free(SCALAR)),
    ("debug", Free(SEED)),
    (
        "experimental",
        Inside(&[
            ("custom_import", Free(NAME)),
            ("custom_args_module", Free(NAME)),
            ("context_parallel_degree", Reads(parallel_degree)),
            ("pipeline_parallel_degree", Reads(parallel_degree)),
            ("enable_async_tensor_parallel", Free(LAUNCH)),
            ("enable_compiled_autograd", Notes(COMPILE, Allowance::Unknown)),
            ("pipeline_parallel_schedule", Free(LAUNCH)),
        ]),
    ),
    ("memory_estimation", Free(LOGS)),
    (
        "model",
        Inside(&[
            ("name", Free("the family; `flavor` says which of it")),
            ("flavor", Reads(flavor)),
            ("norm_type", Free(NAME)),
            ("tokenizer_path", Free(TOKENS)),
            ("hf_assets_path", Free(TOKENS)),
            ("converters", Reads(model_converters)),
            ("print_after_conversion", Free(LOGS)),
        ]),
    ),
    (
        "optimizer",
        Inside(&[
            ("name", Reads(optimizer)),
            ("lr", Free(SCALAR)),
            ("beta1", Free(SCALAR)),
            ("beta2", Free(SCALAR)),
            ("eps", Free(SCALAR)),
            ("weight_decay", Reads(super::optimizer::decay)),
            ("fused", Free("said with `implementation`")),
            ("implementation", Reads(model_implementation)),
            (
                "early_step_in_backward",
                Notes("a step in backward frees gradients early: it takes less", Allowance::Less),
            ),
        ]),
    ),
    (
        "training",
        Inside(&[
            ("local_batch_size", Sets(keys::MICRO_BATCH_SIZE)),
            ("batch_size", Sets(keys::MICRO_BATCH_SIZE)),
            ("global_batch_size", Reads(global_batch)),
            ("seq_len", Sets(keys::SEQ_LEN)),
            ("max_norm", Sets(keys::CLIP_GRAD_NORM)),
            ("steps", Sets(keys::MAX_STEPS)),
            ("dtype", Reads(dtype)),
            ("mixed_precision_param", Reads(|facts, said| shard_dtype(facts, said, keys::FSDP2_PARAM_DTYPE))),
            ("mixed_precision_reduce", Reads(|facts, said| shard_dtype(facts, said, keys::FSDP2_REDUCE_DTYPE))),
            ("data_parallel_shard_degree", Reads(shard_degree)),
            ("data_parallel_replicate_degree", Reads(parallel_degree)),
            ("tensor_parallel_degree", Reads(parallel_degree)),
            ("enable_cpu_offload", Notes(super::words::OFFLOAD, Allowance::Less)),
            ("compile", Notes(COMPILE, Allowance::Unknown)),
            ("gc_freq", Free("Python's garbage collector")),
            ("gc_debug", Free(LOGS)),
            ("seed", Free(SEED)),
            ("deterministic", Free(SEED)),
            ("debug_moe_force_load_balance", Free(SEED)),
            ("warmup_steps", Free(SCALAR)),
            ("dataset", Free(DATA)),
            ("dataset_path", Free(DATA)),
            ("fsdp_reshard_after_forward", Free("said with parallelism")),
        ]),
    ),
    (
        "parallelism",
        Inside(&[
            ("data_parallel_shard_degree", Reads(shard_degree)),
            ("data_parallel_replicate_degree", Reads(parallel_degree)),
            ("fsdp_reshard_after_forward", Reads(reshard_after)),
            ("tensor_parallel_degree", Reads(parallel_degree)),
            ("pipeline_parallel_degree", Reads(parallel_degree)),
            ("context_parallel_degree", Reads(parallel_degree)),
            ("expert_parallel_degree", Reads(parallel_degree)),
            ("expert_tensor_parallel_degree", Reads(parallel_degree)),
            ("enable_async_tensor_parallel", Free(LAUNCH)),
            ("disable_loss_parallel", Free("only tensor parallelism reads it")),
            ("enable_compiled_autograd", Notes(COMPILE, Allowance::Unknown)),
            ("pipeline_parallel_schedule", Free("only a pipeline reads it")),
            ("pipeline_parallel_microbatch_size", Free("only a pipeline reads it")),
            ("pipeline_parallel_split_points", Free("only a pipeline reads it")),
            ("pipeline_parallel_layers_per_stage", Free("only a pipeline reads it")),
            ("context_parallel_rotate_method", Free("only context parallelism reads it")),
            ("module_fqns_per_model_part", Free("only a pipeline reads it")),
        ]),
    ),
    (
        "activation_checkpoint",
        Inside(&[
            ("mode", Reads(activation_checkpointing)),
            ("selective_ac_option", Free("said with `mode`")),
            ("per_op_sac_force_recompute_mm_shapes_by_fqns", Free("said with `mode`")),
            ("early_stop", Free("how far layers are run again")),
        ]),
    ),
    (
        "compile",
        Inside(&[
            ("enable", Notes(COMPILE, Allowance::Unknown)),
            ("components", Free("only torch.compile reads it")),
            ("backend", Free("only torch.compile reads it")),
        ]),
    ),
    ("float8", Free("only a converter reads it")),
    ("quantize", Free("only a converter reads it")),
    ("mx", Free("only a converter reads it")),
    ("lora", Refuses("torchtitan's LoRA is not simulated")),
];

/// A flavor of Llama 3 that is built in; others are named beside the file.
fn flavor(facts: &mut Facts, said: &Said<'_>) -> Became {
    let name = said.other("name").map(|name| crate::tree::plain_text(&name)).unwrap_or_default();
    let known = [("8b", "llama-3.1-8b"), ("70b", "llama-3.1-70b"), ("405b", "llama-3.1-405b")];
    let word = said.word();
    match known.iter().find(|(flavor, _)| name.starts_with("llama3") && *flavor == word) {
        Some((_, model)) => {
            facts.set_text(keys::MODEL, model, said.place);
            Became::Used(keys::MODEL)
        }
        None => Became::Noted(
            format!(
                "what `{}` of {} is, torchtitan's code says: the model named beside the file is taken",
                crate::text::brief_text(&word),
                crate::text::brief_text(&name)
            ),
            Allowance::None,
        ),
    }
}

fn model_converters(_: &mut Facts, said: &Said<'_>) -> Became {
    if is_on(said.value) {
        Became::Refused("layers of fp8 or other formats are not simulated".to_owned())
    } else {
        Became::NoMemory(OFF)
    }
}

fn optimizer(facts: &mut Facts, said: &Said<'_>) -> Became {
    let name = match said.word().as_str() {
        "adamw" => "adamw_fused",
        // Fused, which is its default, Adam allocates what AdamW does.
        "adam" => match said.other("implementation").map(|value| crate::tree::plain_text(&value)).as_deref() {
            Some("foreach" | "for-loop") => "adam",
            _ => "adamw_fused",
        },
        other => {
            return Became::Refused(format!("the optimizer `{}` is not simulated", crate::text::brief_text(other)));
        }
    };
    let name = match said.other("implementation").map(|value| crate::tree::plain_text(&value)) {
        Some(word) if word == "foreach" && name == "adamw_fused" => "adamw",
        Some(word) if word == "for-loop" && name == "adamw_fused" => "adamw_forloop",
        _ => name,
    };
    facts.set_text(keys::OPTIMIZER, name, said.place);
    Became::Used(keys::OPTIMIZER)
}

fn model_implementation(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "fused" | "foreach" | "for-loop" => Became::Used(keys::OPTIMIZER),
        other => Became::Refused(format!("the implementation `{}` is not simulated", crate::text::brief_text(other))),
    }
}

fn global_batch(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_i64() {
        Some(rows) if rows > 0 => facts.set_key(keys::GLOBAL_BATCH_SIZE, said.value, said.place),
        _ => Became::NoMemory(OFF),
    }
}

fn dtype(facts: &mut Facts, said: &Said<'_>) -> Became {
    facts.take_weights(said.value, said.place)
}

fn shard_dtype(facts: &mut Facts, said: &Said<'_>, key: &'static str) -> Became {
    let word = match Dtype::of_word(&said.word()) {
        Some(Dtype::Bf16) => "bf16",
        Some(Dtype::Fp32) => "fp32",
        Some(Dtype::Fp16) => "fp16",
        None => return Became::Refused("a dtype that is not simulated".to_owned()),
    };
    facts.set_text(key, word, said.place);
    Became::Used(key)
}

fn shard_degree(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_i64() {
        Some(ranks) if ranks > 1 => {
            facts.set_text(keys::WORLD_SIZE, ranks, said.place);
            Became::Used(keys::WORLD_SIZE)
        }
        Some(1) => Became::NoMemory("one rank"),
        _ => Became::Noted("all ranks there are: say --world-size".to_owned(), Allowance::None),
    }
}

fn parallel_degree(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_i64() {
        Some(degree) if degree > 1 => Became::Noted(MESH.to_owned(), Allowance::Unknown),
        _ => Became::NoMemory(OFF),
    }
}

fn reshard_after(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "never" => {
            facts.set_text(keys::FSDP2_RESHARD_AFTER_FORWARD, false, said.place);
            Became::Used(keys::FSDP2_RESHARD_AFTER_FORWARD)
        }
        "always" | "default" => Became::Used(keys::PARALLEL),
        _ => Became::NotUnderstood,
    }
}

fn activation_checkpointing(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "none" => {
            facts.set_text(keys::GRADIENT_CHECKPOINTING, false, said.place);
            Became::Used(keys::GRADIENT_CHECKPOINTING)
        }
        "full" => {
            facts.set_text(keys::GRADIENT_CHECKPOINTING, true, said.place);
            Became::Used(keys::GRADIENT_CHECKPOINTING)
        }
        // Some activations are kept: no checkpointing keeps all of them.
        _ => {
            facts.set_text(keys::GRADIENT_CHECKPOINTING, false, said.place);
            Became::Noted(
                "checkpointing of some ops or layers alone takes no more than none, which is estimated".to_owned(),
                Allowance::Less,
            )
        }
    }
}

/// torchtitan shards with FSDP2, in bf16 over fp32 shards.
pub fn finish_titan(facts: &mut Facts, file: &[Entry]) {
    facts.imply_key(keys::TASK, "causal_lm", "what torchtitan trains");
    facts.imply_key(keys::FRAMEWORK, "loop", "torchtitan's own loop");
    facts.imply_key(keys::PARALLEL, "fsdp2", "torchtitan shards with fully_shard");
    facts.imply_key(keys::FSDP2_PARAM_DTYPE, "bf16", "torchtitan's mixed_precision_param");
    facts.imply_key(keys::FSDP2_REDUCE_DTYPE, "fp32", "torchtitan's mixed_precision_reduce");
    facts.imply_key(keys::USE_CACHE, false, "torchtitan's models keep no KV cache");
    facts.imply_key(keys::CLIP_GRAD_NORM, 1.0, "torchtitan's max_norm");
    facts.imply_key(keys::MICRO_BATCH_SIZE, 8, "torchtitan's local_batch_size");
    facts.imply_key(keys::SEQ_LEN, 2048, "torchtitan's seq_len");
    facts.imply_key(keys::OPTIMIZER, "adamw_fused", "torchtitan's AdamW, fused");
    super::optimizer::imply_decay(facts, "0.1", "torchtitan's weight_decay");
    if facts.weights.is_none() {
        facts.weights = Some((Weights::As(Dtype::Fp32), None));
    }
    if find_entry(file, "activation_checkpoint").is_none() {
        // Its default mode is selective: what no checkpointing keeps is the most.
        facts.imply_key(
            keys::GRADIENT_CHECKPOINTING,
            false,
            "torchtitan's selective checkpointing takes no more than none",
        );
        facts.left_open.push(LeftOpen {
            text: "torchtitan checkpoints some ops where nobody says otherwise: it takes less than is estimated"
                .to_owned(),
            allowance: Allowance::Less,
        });
    }
    facts.left_open.push(LeftOpen {
        text: "torchtitan's own models are simulated as transformers'; the range allows a fifth of the peak".to_owned(),
        allowance: Allowance::Fifth,
    });
}
