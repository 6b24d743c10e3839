//! peft's `LoraConfig` and transformers' `BitsAndBytesConfig`.

use serde_json::Value;
use tonnage_core::job::{Allowance, keys};

use super::quantized;
use super::target_pattern::read_pattern;
use super::words::{HUB, NAME, SCALAR};
use crate::facts::Facts;
use crate::rule::Rule::{Free, Notes, Reads, Refuses, Sets};
use crate::rule::{Became, OFF, Row, Said};
use crate::tree::{is_null, is_on, plain_text};

pub(super) const OTHER_TARGETS: &str =
    "adapters on parameters that are no linear layers are not simulated: they take more";
pub(super) const LORA_BIAS: &str = "trained biases are not simulated; the range allows a fifth of the peak";
pub(super) const TIED_COPIES: &str =
    "copies of a tied embedding and head stay tied: of `modules_to_save` they take less than is estimated";
const FEWER: &str = "some of the targets get no adapter: it takes no more than is estimated";
const PATTERN: &str = "ranks that differ by layer are not simulated: they may take more";
const INIT: &str = "how the adapters begin: no size";

/// `LoraConfig` of peft 0.21.
pub const LORA: &[Row] = &[
    ("r", Sets(keys::LORA_R)),
    ("lora_alpha", Sets(keys::LORA_ALPHA)),
    ("lora_dropout", Sets(keys::LORA_DROPOUT)),
    ("target_modules", Reads(targets)),
    ("exclude_modules", Notes(FEWER, Allowance::Less)),
    ("bias", Reads(bias)),
    ("use_rslora", Free(SCALAR)),
    ("modules_to_save", Reads(modules_to_save)),
    ("init_lora_weights", Free(INIT)),
    ("layers_to_transform", Notes(FEWER, Allowance::Less)),
    ("layers_pattern", Notes(FEWER, Allowance::Less)),
    ("rank_pattern", Notes(PATTERN, Allowance::Unknown)),
    ("alpha_pattern", Free(SCALAR)),
    ("fan_in_fan_out", Free("how a weight is stored: no size")),
    ("task_type", Free(NAME)),
    ("peft_type", Reads(peft_type)),
    ("peft_version", Free(NAME)),
    ("auto_mapping", Free(NAME)),
    ("base_model_name_or_path", Free(NAME)),
    ("revision", Free(HUB)),
    ("inference_mode", Refuses("adapters that are not trained are no training")),
    ("megatron_config", Refuses("Megatron's layers are not simulated")),
    ("megatron_core", Free(NAME)),
    ("trainable_token_indices", Notes(OTHER_TARGETS, Allowance::Unknown)),
    ("loftq_config", Free(INIT)),
    ("eva_config", Free(INIT)),
    ("corda_config", Free(INIT)),
    ("lora_ga_config", Free(INIT)),
    ("use_dora", Sets(keys::LORA_USE_DORA)),
    ("velora_config", Refuses("VeLoRA is not simulated")),
    ("alora_invocation_tokens", Refuses("activated LoRA is not simulated")),
    ("use_qalora", Refuses("QALoRA is not simulated")),
    ("qalora_group_size", Free("only QALoRA reads it")),
    ("monteclora_config", Refuses("MonteCLoRA is not simulated")),
    ("layer_replication", Refuses("replicated layers are not simulated")),
    ("runtime_config", Free("how adapters are loaded")),
    ("lora_bias", Notes(LORA_BIAS, Allowance::Fifth)),
    ("target_parameters", Notes(OTHER_TARGETS, Allowance::Unknown)),
    ("use_bdlora", Refuses("block-diagonal LoRA is not simulated")),
    ("arrow_config", Refuses("Arrow's router is not simulated")),
    ("kasa_config", Refuses("KaSA is not simulated")),
    ("ensure_weight_tying", Notes(TIED_COPIES, Allowance::Less)),
];

/// `BitsAndBytesConfig` of transformers 5.17.
pub const QUANTIZATION: &[Row] = &[
    ("load_in_4bit", Reads(quantized::four_bit)),
    ("load_in_8bit", Reads(quantized::eight_bit)),
    ("_load_in_4bit", Free("`load_in_4bit` says it")),
    ("_load_in_8bit", Free("`load_in_8bit` says it")),
    ("quant_method", Free("which package: `load_in_4bit` and `load_in_8bit` say whether")),
    ("llm_int8_threshold", Free(ONLY_QUANTIZED)),
    ("llm_int8_skip_modules", Free(ONLY_QUANTIZED)),
    ("llm_int8_enable_fp32_cpu_offload", Free(ONLY_QUANTIZED)),
    ("llm_int8_has_fp16_weight", Free(ONLY_QUANTIZED)),
    ("bnb_4bit_compute_dtype", Reads(quantized::compute_dtype)),
    ("bnb_4bit_quant_type", Free("`load_in_4bit` reads it")),
    ("bnb_4bit_use_double_quant", Reads(quantized::double)),
    ("bnb_4bit_quant_storage", Free(ONLY_QUANTIZED)),
];

pub(super) const ONLY_QUANTIZED: &str = "only quantized weights read it";

/// The targets: names, `all-linear`, or a pattern, which is refused.
pub fn targets(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.value {
        value if is_null(value) => Became::NoMemory("not said: peft's own targets of the model type"),
        Value::String(text) if is_pattern(text) => match read_pattern(text) {
            Some(found) => {
                facts.set_text(keys::LORA_TARGETS, found.names.join(","), said.place);
                match found.is_everywhere {
                    true => Became::Used(keys::LORA_TARGETS),
                    false => Became::Noted(FEWER.to_owned(), Allowance::Less),
                }
            }
            None => {
                let why = "this pattern of names is not read: name the layers (`--lora-targets q_proj,v_proj`)";
                Became::Refused(why.to_owned())
            }
        },
        Value::Array(items) if items.iter().any(|item| is_table_of_tokens(&plain_text(item))) => {
            facts.set_key(keys::LORA_TARGETS, said.value, said.place);
            Became::Used(keys::LORA_TARGETS)
        }
        value => facts.set_key(keys::LORA_TARGETS, value, said.place),
    }
}

fn is_table_of_tokens(name: &str) -> bool {
    matches!(name, "embed_tokens" | "wte")
}

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '(', '|', '\\', '^', '$', '?', '+'])
}

/// Names of modules, of which none is none.
pub(super) fn modules_to_save(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.set_key(keys::LORA_MODULES_TO_SAVE, said.value, said.place)
}

pub(super) fn bias(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "none" | "null" | "false" => Became::NoMemory(OFF),
        _ => Became::Noted(LORA_BIAS.to_owned(), Allowance::Fifth),
    }
}

fn peft_type(_: &mut Facts, said: &Said<'_>) -> Became {
    let word = said.word();
    match word.rsplit('.').next() {
        Some("lora") | None => Became::NoMemory(NAME),
        _ if !is_on(said.value) => Became::NoMemory(NAME),
        Some(other) => Became::Refused(format!("`{}` adapters are not simulated", crate::text::brief_text(other))),
    }
}
