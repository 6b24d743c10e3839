//! What the programs' words for quantized weights come to: bitsandbytes' 4 or 8 bits below adapters.

use tonnage_core::job::{Allowance, keys};

use super::peft::ONLY_QUANTIZED;
use super::words::QUANTIZED;
use crate::facts::{Dtype, Facts};
use crate::rule::{Became, OFF, Said};
use crate::tree::{is_on, plain_text};

const AXOLOTL: &str =
    "Axolotl prepares a quantized model its own way, which was not measured; the range allows a fifth";
const LLAMA_FACTORY: &str =
    "LLaMA-Factory prepares a quantized model its own way, which was not measured; the range allows a fifth";
const FOUR_BITS: &str = "load_in_4bit";

/// `load_in_4bit` of `BitsAndBytesConfig`, whose values are fp4's where nobody says nf4.
pub fn four_bit(facts: &mut Facts, said: &Said<'_>) -> Became {
    four_bit_or(facts, said, "fp4")
}

/// `load_in_4bit` of TRL's `ModelConfig`.
pub fn four_bit_of_trl(facts: &mut Facts, said: &Said<'_>) -> Became {
    four_bit_or(facts, said, "nf4")
}

fn four_bit_or(facts: &mut Facts, said: &Said<'_>, otherwise: &str) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    let values = said.other("bnb_4bit_quant_type").map_or_else(|| otherwise.to_owned(), |values| plain_text(&values));
    facts.set_text(keys::QUANTIZATION, values, said.place);
    Became::Used(keys::QUANTIZATION)
}

/// `load_in_8bit`.
pub fn eight_bit(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.set_text(keys::QUANTIZATION, "int8", said.place);
    Became::Used(keys::QUANTIZATION)
}

/// Whether the scales are quantized too, which 4 bits alone read.
pub fn double(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !said.other_is_on(FOUR_BITS) {
        return Became::NoMemory(ONLY_QUANTIZED);
    }
    facts.set_key(keys::BNB_4BIT_USE_DOUBLE_QUANT, said.value, said.place)
}

/// What layers in 4 bits compute in.
pub fn compute_dtype(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !said.other_is_on(FOUR_BITS) {
        return Became::NoMemory(ONLY_QUANTIZED);
    }
    let word = said.word();
    let known = Dtype::of_word(&word).map_or(word, |dtype| word_of(dtype).to_owned());
    facts.set_text(keys::BNB_4BIT_COMPUTE_DTYPE, known, said.place);
    Became::Used(keys::BNB_4BIT_COMPUTE_DTYPE)
}

const fn word_of(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Fp32 => "fp32",
        Dtype::Bf16 => "bf16",
        Dtype::Fp16 => "fp16",
    }
}

/// Axolotl's `load_in_4bit`: nf4 with quantized scales, computed in the model's dtype.
pub fn four_bit_of_axolotl(facts: &mut Facts, said: &Said<'_>) -> Became {
    let became = four_bit_of_trl(facts, said);
    if became == Became::NoMemory(OFF) {
        return became;
    }
    imply_nested(facts, "Axolotl's");
    // loaders/model.py, `_prepare_model_for_quantization`: FSDP wants one dtype, and experts would be unpacked.
    let is_sharded = said.other_is_on("fsdp") || said.other_is_on("fsdp_config");
    if !is_sharded && !said.other_is_on("quantize_moe_experts") {
        facts.imply_key(keys::PREPARE_FOR_KBIT_TRAINING, true, "Axolotl's");
    }
    Became::Noted(AXOLOTL.to_owned(), Allowance::Fifth)
}

/// Axolotl's `load_in_8bit`.
pub fn eight_bit_of_axolotl(facts: &mut Facts, said: &Said<'_>) -> Became {
    match eight_bit(facts, said) {
        Became::Used(_) => Became::Noted(AXOLOTL.to_owned(), Allowance::Fifth),
        off => off,
    }
}

/// Axolotl's `quantize_moe_experts`, which only quantized models read.
pub fn experts_of_axolotl(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    if !said.other_is_on(FOUR_BITS) && !said.other_is_on("load_in_8bit") {
        return Became::Refused("Axolotl takes it with `load_in_4bit` or `load_in_8bit` alone".to_owned());
    }
    facts.set_key(keys::QUANTIZE_MOE_EXPERTS, said.value, said.place)
}

/// Unsloth's `load_in_4bit`: nf4 with quantized scales; its own preparation leaves norms as they are.
pub fn four_bit_of_unsloth(facts: &mut Facts, said: &Said<'_>) -> Became {
    // All weights are trained then, and none is quantized (unsloth/models/loader.py).
    if said.other_is_on("full_finetuning") {
        return Became::NoMemory("full_finetuning switches it off");
    }
    let became = four_bit_of_trl(facts, said);
    if became != Became::NoMemory(OFF) {
        imply_below_unsloth(facts);
    }
    became
}

/// What Unsloth's `from_pretrained` does where nothing is said: `load_in_4bit` is on.
pub fn imply_four_bit_of_unsloth(facts: &mut Facts) {
    facts.imply_key(keys::QUANTIZATION, "nf4", "Unsloth's from_pretrained: load_in_4bit");
    imply_below_unsloth(facts);
}

fn imply_below_unsloth(facts: &mut Facts) {
    imply_nested(facts, "Unsloth's");
    facts.imply_key(keys::PREPARE_FOR_KBIT_TRAINING, false, "Unsloth's");
}

/// LLaMA-Factory's `quantization_bit`, as far as bitsandbytes does it.
pub fn bits_of_llama_factory(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    let method = said.other("quantization_method").map_or_else(|| "bnb".to_owned(), |method| plain_text(&method));
    let values = said.other("quantization_type").map_or_else(|| "nf4".to_owned(), |values| plain_text(&values));
    match (method.to_lowercase().as_str(), said.word().as_str()) {
        ("bnb" | "bitsandbytes", "4") => {
            facts.set_text(keys::QUANTIZATION, values, said.place);
            if said.other("double_quantization").is_none_or(|double| is_on(&double)) {
                imply_nested(facts, "LLaMA-Factory's");
            }
        }
        ("bnb" | "bitsandbytes", "8") => facts.set_text(keys::QUANTIZATION, "int8", said.place),
        _ => return Became::Refused(QUANTIZED.to_owned()),
    }
    facts.imply_key(keys::PREPARE_FOR_KBIT_TRAINING, false, "LLaMA-Factory's");
    Became::Noted(LLAMA_FACTORY.to_owned(), Allowance::Fifth)
}

fn imply_nested(facts: &mut Facts, whose: &str) {
    facts.imply_key(keys::BNB_4BIT_USE_DOUBLE_QUANT, true, whose);
    facts.imply_key(keys::BNB_4BIT_COMPUTE_DTYPE, "bf16", whose);
}
