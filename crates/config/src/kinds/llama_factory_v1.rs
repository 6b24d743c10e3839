//! The second form of LLaMA-Factory's configs (`src/llamafactory/v1`): a table for each plugin, and a loop of its own.

use serde_json::Value;
use tonnage_core::job::{Allowance, LeftOpen, keys};

use super::peft;
use super::quantized;
use super::words::{OFFLOAD, SAVES, SCALAR};
use crate::facts::{Dtype, Facts, Weights};
use crate::rule::Rule::{Free, Notes, Reads};
use crate::rule::{Became, OFF, Row, Said};
use crate::tree::{Entry, find_entry, is_null, plain_text};

const FROZEN: &str = "with part of the weights frozen it takes less than is estimated";
const KERNELS: &str = "LLaMA-Factory v1's own kernels were not measured; the range allows a fifth of the peak";
const LOOP: &str = "LLaMA-Factory v1's own loop, which casts all logits to fp32 and copies them, was not measured, and which trainer it runs \
                    its command says: SFT is estimated, on one GPU where nothing says how many";

/// How adapters are made.
pub const PEFT: &[Row] = &[
    ("name", Reads(adapter_kind)),
    ("r", Reads(|facts, said| of_adapter(facts, said, keys::LORA_R))),
    ("lora_alpha", Reads(|facts, said| of_adapter(facts, said, keys::LORA_ALPHA))),
    ("lora_dropout", Reads(|facts, said| of_adapter(facts, said, keys::LORA_DROPOUT))),
    ("target_modules", Reads(targets)),
    ("use_rslora", Free(SCALAR)),
    ("use_dora", Reads(|facts, said| of_adapter(facts, said, keys::LORA_USE_DORA))),
    ("modules_to_save", Reads(modules_to_save)),
    ("adapter_name_or_path", Free("where adapters are loaded from")),
    ("freeze_trainable_layers", Free("`name` says it")),
    ("freeze_trainable_modules", Free("`name` says it")),
    ("freeze_extra_modules", Free("`name` says it")),
    ("export_dir", Free(SAVES)),
    ("export_size", Free(SAVES)),
    ("infer_dtype", Free(SAVES)),
];

/// Which kernels take the place of the model's own.
pub const KERNEL: &[Row] = &[
    ("name", Reads(kernels)),
    ("include_kernels", Notes(KERNELS, Allowance::Fifth)),
    ("chunk_size", Free("only kernels of linear attention read it")),
];

/// How ranks share the model.
pub const RANKS: &[Row] = &[
    ("name", Reads(strategy)),
    ("config_file", Reads(|facts, said| facts.became_named(said, "DeepSpeed's config"))),
    ("dcp_path", Free(SAVES)),
    ("reshard_after_forward", Reads(reshard_after)),
    ("offload_params", Notes(OFFLOAD, Allowance::Less)),
    ("pin_memory", Free("how the host holds what is offloaded")),
];

/// How weights reach the GPU.
pub const INIT: &[Row] = &[("name", Free("how weights reach the ranks"))];

/// How weights are quantized.
pub const QUANTIZED: &[Row] = &[
    ("name", Free("`quantization_bit` reads it")),
    ("quantization_bit", Reads(quantized::bits_of_llama_factory)),
    ("quantization_type", Free("`quantization_bit` reads it")),
    ("double_quantization", Free("`quantization_bit` reads it")),
    ("compute_dtype", Free("`quantization_bit` reads it")),
];

/// Of `optim_config`, less the rates: the name alone changes the states.
pub const OPTIMIZER: &[Row] = &[
    ("name", Reads(super::optimizer::read)),
    ("wd", Free(SCALAR)),
    ("momentum", Free(SCALAR)),
    ("nesterov", Free(SCALAR)),
    ("ns_steps", Free(SCALAR)),
    ("adamw_betas", Free(SCALAR)),
    ("adamw_eps", Free(SCALAR)),
];

/// Whether a file is of this form.
pub fn is_second_form(file: &[Entry]) -> bool {
    find_entry(file, "model").is_some() && find_entry(file, "model_name_or_path").is_none()
}

fn adapter_kind(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "lora" => {
            facts.imply_key(keys::LORA_R, 8, "LLaMA-Factory v1's r");
            facts.imply_key(keys::LORA_TARGETS, "all-linear", "LLaMA-Factory v1's target_modules: all");
            facts.imply_key(keys::LORA_DROPOUT, 0.05, "LLaMA-Factory v1's lora_dropout");
            Became::Used(keys::LORA_R)
        }
        "freeze" => Became::Noted(FROZEN.to_owned(), Allowance::Less),
        "" | "null" => Became::NoMemory(OFF),
        other => Became::Refused(format!("`{}` adapters are not simulated", crate::text::brief_text(other))),
    }
}

fn is_lora(said: &Said<'_>) -> bool {
    said.other("name").is_some_and(|name| plain_text(&name).eq_ignore_ascii_case("lora"))
}

fn of_adapter(facts: &mut Facts, said: &Said<'_>, key: &'static str) -> Became {
    if !is_lora(said) || is_null(said.value) {
        return Became::NoMemory("no adapter is made: `name` is not lora");
    }
    facts.set_key(key, said.value, said.place)
}

fn modules_to_save(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_lora(said) {
        return Became::NoMemory("no adapter is made: `name` is not lora");
    }
    peft::modules_to_save(facts, said)
}

fn targets(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "all" if is_lora(said) => {
            facts.set_text(keys::LORA_TARGETS, "all-linear", said.place);
            Became::Used(keys::LORA_TARGETS)
        }
        _ if is_lora(said) => peft::targets(facts, said),
        _ => Became::NoMemory("no adapter is made: `name` is not lora"),
    }
}

/// `auto`, or names with commas between them.
fn kernels(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "" | "null" => Became::NoMemory(OFF),
        "liger_kernel" => facts.set_key(keys::USE_LIGER_KERNEL, &Value::Bool(true), said.place),
        _ => Became::Noted(KERNELS.to_owned(), Allowance::Fifth),
    }
}

fn strategy(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "" | "null" => Became::NoMemory(OFF),
        "fsdp2" => {
            facts.set_text(keys::PARALLEL, "fsdp2", said.place);
            Became::Used(keys::PARALLEL)
        }
        "deepspeed" => Became::NoMemory("`config_file` says how"),
        other => Became::Refused(format!("ranks by `{}` are not simulated", crate::text::brief_text(other))),
    }
}

fn reshard_after(facts: &mut Facts, said: &Said<'_>) -> Became {
    facts.set_key(keys::FSDP2_RESHARD_AFTER_FORWARD, said.value, said.place)
}

/// The form's own defaults (v1/config/training_args.py, v1/core/model_engine.py, v1/plugins).
pub fn finish_second_form(facts: &mut Facts) {
    const WHOSE: &str = "LLaMA-Factory v1's";
    let bf16 = facts.autocast.take().is_none_or(|(dtype, _)| dtype == Some(Dtype::Bf16));
    facts.imply_key(keys::TASK, "causal_lm", WHOSE);
    facts.imply_key(keys::FRAMEWORK, "loop", "LLaMA-Factory v1's own loop");
    facts.imply_key(keys::SEQ_LEN, 2048, "LLaMA-Factory v1's cutoff_len");
    facts.imply_key(keys::MICRO_BATCH_SIZE, 1, "LLaMA-Factory v1's micro_batch_size");
    facts.imply_key(keys::GRADIENT_CHECKPOINTING, true, "LLaMA-Factory v1's enable_activation_checkpointing");
    facts.imply_key(keys::CLIP_GRAD_NORM, 1.0, "LLaMA-Factory v1's max_grad_norm");
    facts.imply_key(keys::USE_CACHE, false, "a checkpointed model keeps no KV cache");
    // What is trained whole is cast to fp32; below adapters the weights stay as published.
    let weights = if facts.is_set(keys::LORA_R) { Weights::Published } else { Weights::As(Dtype::Fp32) };
    facts.weights = Some((weights, None));
    if facts.value_of(keys::PARALLEL) == Some("fsdp2") {
        facts.imply_key(keys::FSDP2_PARAM_DTYPE, if bf16 { "bf16" } else { "fp32" }, "LLaMA-Factory v1's bf16");
        facts.imply_key(keys::FSDP2_REDUCE_DTYPE, "fp32", WHOSE);
    }
    if bf16 && facts.value_of(keys::PARALLEL) == Some("deepspeed") {
        facts.autocast = Some((Some(Dtype::Bf16), None));
    }
    facts.left_open.push(LeftOpen { text: LOOP.to_owned(), allowance: Allowance::Unknown });
}
