//! FSDP as accelerate, the Trainer and Axolotl configure it.

use serde_json::Value;
use tonnage_core::job::{Allowance, LeftOpen, keys};

use super::words::{LAUNCH, SAVES};
use crate::facts::Facts;
use crate::rule::Rule::{Free, Notes, Reads};
use crate::rule::{Became, OFF, Row, Said};
use crate::tree::{is_null, is_on, plain_text};

/// Said where what FSDP1 was told is not simulated with its flat parameters.
pub const FIRST: &str = "FSDP1 is simulated as FSDP2; its flat parameters and buffers were not measured, the range allows a fifth of the peak";
const SECOND: &str = "how accelerate calls FSDP2 was not measured; the range allows a fifth of the peak";
const WRAPPED: &str = "layers are wrapped one by one, as this says";
const ONE_GROUP: &str =
    "wrapping by another policy than by layer was not measured; the range allows a fifth of the peak";

/// A table of FSDP's: accelerate's names, and Axolotl's and the Trainer's without `fsdp_`.
pub const ROWS: &[Row] = &[
    ("fsdp_version", Free("said with the table")),
    ("version", Free("said with the table")),
    ("fsdp_sharding_strategy", Reads(sharding_strategy)),
    ("sharding_strategy", Reads(sharding_strategy)),
    ("fsdp_reshard_after_forward", Reads(reshard_after)),
    ("reshard_after_forward", Reads(reshard_after)),
    ("fsdp_offload_params", Reads(offload_params)),
    ("offload_params", Reads(offload_params)),
    ("cpu_offload_pin_memory", Reads(pin_memory)),
    ("fsdp_activation_checkpointing", Reads(activation_checkpointing)),
    ("activation_checkpointing", Reads(activation_checkpointing)),
    ("fsdp_auto_wrap_policy", Reads(wrap_policy)),
    ("auto_wrap_policy", Reads(wrap_policy)),
    ("fsdp_transformer_layer_cls_to_wrap", Free(WRAPPED)),
    ("transformer_layer_cls_to_wrap", Free(WRAPPED)),
    ("fsdp_min_num_params", Notes(ONE_GROUP, Allowance::Fifth)),
    ("min_num_params", Notes(ONE_GROUP, Allowance::Fifth)),
    ("fsdp_backward_prefetch", Reads(backward_prefetch)),
    ("backward_prefetch", Reads(backward_prefetch)),
    ("fsdp_backward_prefetch_policy", Reads(backward_prefetch)),
    (
        "fsdp_forward_prefetch",
        Notes("one more layer is gathered ahead; the range allows a fifth of the peak", Allowance::Fifth),
    ),
    (
        "forward_prefetch",
        Notes("one more layer is gathered ahead; the range allows a fifth of the peak", Allowance::Fifth),
    ),
    ("fsdp_limit_all_gathers", Free("how many gathers are under way: two, as is simulated")),
    ("limit_all_gathers", Free("how many gathers are under way: two, as is simulated")),
    ("fsdp_cpu_ram_efficient_loading", Free("how weights reach the host")),
    ("cpu_ram_efficient_loading", Free("how weights reach the host")),
    ("fsdp_sync_module_states", Reads(sync_module_states)),
    ("sync_module_states", Reads(sync_module_states)),
    ("fsdp_use_orig_params", Reads(use_orig_params)),
    ("use_orig_params", Reads(use_orig_params)),
    ("fsdp_state_dict_type", Free(SAVES)),
    ("state_dict_type", Free(SAVES)),
    ("final_state_dict_type", Free(SAVES)),
    ("xla", Notes("XLA is not simulated", Allowance::Unknown)),
    ("mixed_precision_policy", Reads(mixed_dtypes)),
    ("fsdp_ignored_modules", Notes("modules that stay whole on every rank are not simulated", Allowance::Unknown)),
    ("fsdp_config", Free(LAUNCH)),
];

fn sharding_strategy(facts: &mut Facts, said: &Said<'_>) -> Became {
    let word = said.word().replace("shardingstrategy.", "");
    match word.as_str() {
        "full_shard" | "1" => Became::Used(keys::PARALLEL),
        "shard_grad_op" | "2" => {
            facts.set_text(keys::FSDP2_RESHARD_AFTER_FORWARD, false, said.place);
            Became::Used(keys::FSDP2_RESHARD_AFTER_FORWARD)
        }
        "no_shard" | "3" => Became::Refused("FSDP that shards nothing is not simulated: it is DDP's memory".to_owned()),
        _ => Became::Noted(
            "a node holds a whole model in shards: say how many nodes there are, as replicate_size".to_owned(),
            Allowance::Unknown,
        ),
    }
}

fn backward_prefetch(facts: &mut Facts, said: &Said<'_>) -> Became {
    let word = said.word();
    let prefetch = match word.replace("backwardprefetch.", "").as_str() {
        "backward_pre" | "1" => "pre",
        "backward_post" | "2" => "post",
        _ => "none",
    };
    facts.flat.push((keys::FSDP1_BACKWARD_PREFETCH, prefetch.to_owned()));
    Became::Used(keys::FSDP1_BACKWARD_PREFETCH)
}

fn sync_module_states(facts: &mut Facts, said: &Said<'_>) -> Became {
    facts.flat.push((keys::FSDP1_SYNC_MODULE_STATES, is_on(said.value).to_string()));
    Became::Used(keys::FSDP1_SYNC_MODULE_STATES)
}

fn use_orig_params(facts: &mut Facts, said: &Said<'_>) -> Became {
    facts.flat.push((keys::FSDP1_USE_ORIG_PARAMS, is_on(said.value).to_string()));
    Became::Used(keys::FSDP1_USE_ORIG_PARAMS)
}

fn reshard_after(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "full_shard" => Became::Used(keys::PARALLEL),
        "shard_grad_op" => {
            facts.set_text(keys::FSDP2_RESHARD_AFTER_FORWARD, false, said.place);
            Became::Used(keys::FSDP2_RESHARD_AFTER_FORWARD)
        }
        _ => {
            facts.set_text(keys::FSDP2_RESHARD_AFTER_FORWARD, is_on(said.value), said.place);
            Became::Used(keys::FSDP2_RESHARD_AFTER_FORWARD)
        }
    }
}

/// `CPUOffloadPolicy`; FSDP1's offload, whose flat gradients come to the host too, is simulated as it.
fn offload_params(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.set_text(keys::FSDP2_CPU_OFFLOAD, true, said.place);
    Became::Used(keys::FSDP2_CPU_OFFLOAD)
}

fn pin_memory(facts: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.set_text(keys::FSDP2_CPU_OFFLOAD_PIN_MEMORY, is_on(said.value), said.place);
    Became::Used(keys::FSDP2_CPU_OFFLOAD_PIN_MEMORY)
}

fn activation_checkpointing(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.set_text(keys::GRADIENT_CHECKPOINTING, true, said.place);
    Became::Used(keys::GRADIENT_CHECKPOINTING)
}

fn wrap_policy(_: &mut Facts, said: &Said<'_>) -> Became {
    let word = said.word();
    if word.contains("transformer") {
        Became::NoMemory(WRAPPED)
    } else {
        Became::Noted(ONE_GROUP.to_owned(), Allowance::Fifth)
    }
}

fn mixed_dtypes(facts: &mut Facts, said: &Said<'_>) -> Became {
    match crate::facts::Dtype::of_word(&said.word()) {
        Some(crate::facts::Dtype::Bf16) => {
            shard_dtype(facts, "bf16", said);
            Became::Used(keys::FSDP2_PARAM_DTYPE)
        }
        _ if is_null(said.value) => Became::NoMemory(OFF),
        _ => Became::Noted("other dtypes of shards than bf16 were not measured".to_owned(), Allowance::Fifth),
    }
}

fn shard_dtype(facts: &mut Facts, dtype: &str, said: &Said<'_>) {
    facts.set_text(keys::FSDP2_PARAM_DTYPE, dtype, said.place);
    facts.set_text(keys::FSDP2_REDUCE_DTYPE, dtype, said.place);
}

/// Parameters, gradients and states over the ranks.
pub fn shard_job(facts: &mut Facts, version: u64, said: &Said<'_>) {
    facts.set_text(keys::PARALLEL, "fsdp2", said.place);
    facts.takes_shards |= version == 1;
    facts.is_flat |= version == 1;
    let text = if version == 2 { SECOND } else { FIRST };
    let known = facts.left_open.iter().any(|left| left.text == text);
    if !known {
        facts.left_open.push(LeftOpen { text: text.to_owned(), allowance: Allowance::Fifth });
    }
}

/// The version that a table of FSDP's says.
pub fn version_of_fsdp(table: Option<&Value>) -> Option<u64> {
    let table = table?.as_object()?;
    let value = table.get("fsdp_version").or_else(|| table.get("version"))?;
    value.as_u64().or_else(|| plain_text(value).parse().ok())
}

/// The Trainer's `fsdp`: words, or a switch.
pub fn of_trainer(facts: &mut Facts, said: &Said<'_>) -> Became {
    let words = match said.value {
        Value::Array(items) => items.iter().map(plain_text).collect::<Vec<_>>().join(" "),
        other => plain_text(other),
    };
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    let version = version_of_fsdp(said.other("fsdp_config").as_ref()).unwrap_or(1);
    shard_job(facts, version, said);
    for word in words.to_lowercase().split([' ', ',']).filter(|word| !word.is_empty()) {
        match word {
            "full_shard" | "auto_wrap" | "true" => {}
            "shard_grad_op" => facts.set_text(keys::FSDP2_RESHARD_AFTER_FORWARD, false, said.place),
            "offload" => facts.set_text(keys::FSDP2_CPU_OFFLOAD, true, said.place),
            other => return Became::Refused(format!("FSDP's `{}` is not simulated", crate::text::brief_text(other))),
        }
    }
    Became::Used(keys::PARALLEL)
}

/// The Trainer's `fsdp_config` where it is a file's name.
pub fn named_config(facts: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.wanted.push(plain_text(said.value));
    Became::Refused("the file that it names was not given: give it too, with --from".to_owned())
}
