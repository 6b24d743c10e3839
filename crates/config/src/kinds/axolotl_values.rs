//! What the values of Axolotl's keys come to.

use serde_json::Value;
use tonnage_core::job::{Allowance, LeftOpen, keys};

use super::trainer::set_attention;
use super::words::{LOSS, QUANTIZED, TOKENS};
use super::{fsdp, optimizer, peft};
use crate::facts::{Dtype, Facts, Weights};
use crate::rule::{Became, OFF, Said};
use crate::tree::{Entry, find_entry, is_null, is_on, plain_text};

pub(super) fn optimizer_word(facts: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) {
        return Became::NoMemory("not said: Axolotl's adamw_torch_fused");
    }
    optimizer::read(facts, said)
}

/// `bf16`: weights of bf16 under autocast; `auto` is on where the GPU has it, `full` is weights of bf16 alone.
pub(super) fn bf16(facts: &mut Facts, said: &Said<'_>) -> Became {
    if said.word() == "full" {
        facts.weights = Some((Weights::As(Dtype::Bf16), said.place.cloned()));
        return Became::Used(keys::PRECISION);
    }
    if is_on(said.value) {
        facts.weights = Some((Weights::As(Dtype::Bf16), said.place.cloned()));
    }
    facts.take_autocast(Dtype::Bf16, is_on(said.value), said.place)
}

pub(super) fn fp16(facts: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) {
        return Became::NoMemory(OFF);
    }
    if is_on(said.value) {
        // Axolotl loads fp16 weights then; full training casts them up again, or stops.
        facts.weights = Some((Weights::As(Dtype::Fp16), said.place.cloned()));
    }
    facts.take_autocast(Dtype::Fp16, is_on(said.value), said.place)
}

pub(super) fn half_precision(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.weights = Some((Weights::As(Dtype::Bf16), said.place.cloned()));
    Became::Used(keys::PRECISION)
}

pub(super) fn full_precision(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.weights = Some((Weights::As(Dtype::Fp32), said.place.cloned()));
    Became::Used(keys::PRECISION)
}

pub(super) fn tf32(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "auto" => Became::NoMemory("how products are computed: no size"),
        _ if is_null(said.value) => Became::NoMemory(OFF),
        _ => facts.set_key(keys::ALLOW_TF32, said.value, said.place),
    }
}

pub(super) fn has_adapter(said: &Said<'_>) -> bool {
    said.other("adapter").is_some_and(|value| matches!(plain_text(&value).to_lowercase().as_str(), "lora" | "qlora"))
}

pub(super) fn adapter_kind(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "lora" | "qlora" => Became::Used(keys::LORA_R),
        "" | "null" => Became::NoMemory(OFF),
        other => Became::Refused(format!("`{}` adapters are not simulated", crate::text::brief_text(other))),
    }
}

const NO_ADAPTER: &str = "no adapter is made: `adapter` is not lora";

pub(super) fn of_adapter(facts: &mut Facts, said: &Said<'_>, key: &'static str) -> Became {
    if !has_adapter(said) || is_null(said.value) {
        return Became::NoMemory(NO_ADAPTER);
    }
    facts.set_key(key, said.value, said.place)
}

pub(super) fn lora_targets(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !has_adapter(said) || said.other_is_on("lora_target_linear") || !is_on(said.value) {
        return Became::NoMemory("every linear layer is a target, or no adapter is made");
    }
    peft::targets(facts, said)
}

pub(super) fn all_linear(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !has_adapter(said) || !is_on(said.value) {
        return Became::NoMemory(NO_ADAPTER);
    }
    facts.set_text(keys::LORA_TARGETS, "all-linear-names", said.place);
    Became::Used(keys::LORA_TARGETS)
}

pub(super) fn modules_to_save(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !has_adapter(said) {
        return Became::NoMemory(NO_ADAPTER);
    }
    peft::modules_to_save(facts, said)
}

pub(super) fn adapter_dtype(_: &mut Facts, said: &Said<'_>) -> Became {
    if said.value == &Value::Bool(false) {
        return Became::Noted("adapters of the weights' dtype take less than is estimated".to_owned(), Allowance::Less);
    }
    Became::NoMemory("peft's default")
}

/// Models that are published in mxfp4, and the same with weights of bf16.
const DEQUANTIZED: [(&str, &str); 3] = [
    ("openai/gpt-oss-20b", "unsloth/gpt-oss-20b-BF16"),
    ("openai/gpt-oss-safeguard-20b", "unsloth/gpt-oss-20b-BF16"),
    ("openai/gpt-oss-120b", "unsloth/gpt-oss-120b-BF16"),
];

pub(super) fn model_quantization(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    let kwargs = said.other("model_quantization_config_kwargs");
    if kwargs.as_ref().and_then(|kwargs| kwargs.get("dequantize")).is_some_and(is_on) {
        if let Some(model) = facts.sets.iter_mut().find(|given| given.key == keys::MODEL)
            && let Some((_, same)) = DEQUANTIZED.iter().find(|(name, _)| name.eq_ignore_ascii_case(&model.value))
        {
            (*same).clone_into(&mut model.value);
        }
        return Became::NoMemory("the weights are dequantized when they are loaded");
    }
    Became::Refused(QUANTIZED.to_owned())
}

pub(super) fn switch_precision(facts: &mut Facts, said: &Said<'_>, word: &str) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    set_attention(facts, word, said.place)
}

pub(super) fn sharded_model(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    sharded_version(facts, said);
    fsdp::of_trainer(facts, said)
}

/// `fsdp_version`, which alone turns FSDP on where a table of it is there.
pub(super) fn sharded_version(facts: &mut Facts, said: &Said<'_>) -> Became {
    let version = said.other("fsdp_version").and_then(|value| value.as_u64());
    let version = version.or_else(|| fsdp::version_of_fsdp(said.other("fsdp_config").as_ref())).unwrap_or(1);
    if said.other_is_on("fsdp_config") || said.other_is_on("fsdp") {
        fsdp::shard_job(facts, version, said);
        return Became::Used(keys::PARALLEL);
    }
    Became::NoMemory("no table of FSDP is there")
}

pub(super) fn parallel_degree(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_u64() {
        Some(0 | 1) | None => Became::NoMemory(OFF),
        _ => Became::Noted(super::axolotl::MESH.to_owned(), Allowance::Unknown),
    }
}

const ENERGY: &str = "energy-based fine-tuning is simulated in its update alone, as training on next tokens: what it generates and the \
                      features that it compares lie beside; the range goes from weights and states alone and has no upper bound";

/// The table of energy-based fine-tuning.
pub(super) fn of_energy(said: &Said<'_>) -> Became {
    match said.other("rl").is_some_and(|rl| rl == "ebft") {
        true => Became::NoMemory("what `rl: ebft` says of it: only its update is simulated"),
        false => Became::NoMemory("only `rl: ebft` reads it"),
    }
}

pub(super) fn task_kind(facts: &mut Facts, said: &Said<'_>) -> Became {
    let task = match said.word().as_str() {
        "" | "null" => return Became::NoMemory(OFF),
        "dpo" | "ipo" => "dpo",
        "grpo" => "grpo",
        "kto" => "kto",
        "orpo" => "orpo",
        // TRL's CPOTrainer, whose likelihood weighs 1 unless `cpo_alpha` says otherwise (Axolotl's core/builders/rl.py).
        "simpo" => {
            facts.set_text(keys::CPO_LOSS, "simpo", said.place);
            "cpo"
        }
        "ebft" => {
            facts.set_text(keys::TASK, "causal_lm", said.place);
            return Became::Noted(ENERGY.to_owned(), Allowance::AllButStates);
        }
        other => {
            return Became::Refused(format!("training by `{}` is not simulated", crate::text::brief_text(other)));
        }
    };
    facts.set_text(keys::TASK, task, said.place);
    Became::Used(keys::TASK)
}

/// Whose weight of the likelihood it is.
pub(super) fn weight_of_likelihood(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !said.other("rl").is_some_and(|rl| rl == "simpo") || is_null(said.value) {
        return Became::NoMemory("only `rl: simpo` reads it");
    }
    facts.set_key(keys::CPO_ALPHA, said.value, said.place)
}

/// The reference's log-probabilities before training, of whichever trainer has a reference.
pub(super) fn precomputed_reference(facts: &mut Facts, said: &Said<'_>) -> Became {
    let is_kto = said.other("rl").is_some_and(|rl| rl == "kto");
    let key = if is_kto { keys::KTO_PRECOMPUTE_REF_LOG_PROBS } else { keys::DPO_PRECOMPUTE_REF_LOG_PROBS };
    facts.set_key(key, said.value, said.place)
}

/// A score of each row (`AutoModelForSequenceClassification` with one label), as TRL's RewardTrainer trains it.
pub(super) fn reward_model(facts: &mut Facts, said: &Said<'_>) -> Became {
    trains_head(facts, said, "reward")
}

/// A class of each step's end, which TRL's PRMTrainer trains as the Trainer trains classes of tokens.
pub(super) fn process_reward_model(facts: &mut Facts, said: &Said<'_>) -> Became {
    trains_head(facts, said, "token_classification")
}

fn trains_head(facts: &mut Facts, said: &Said<'_>, task: &str) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.set_text(keys::TASK, task, said.place);
    Became::Used(keys::TASK)
}

pub(super) fn label_count(_: &mut Facts, said: &Said<'_>) -> Became {
    if said.other_is_on("reward_model") {
        return Became::NoMemory("a reward model has one label");
    }
    match said.value.as_u64() {
        Some(2) if said.other_is_on("process_reward_model") => Became::NoMemory("as many as the head has by itself"),
        _ if is_null(said.value) => Became::NoMemory(OFF),
        _ => {
            Became::Refused("of how many classes a head is, is not read here: say --set model.num_labels=N".to_owned())
        }
    }
}

pub(super) fn adam_beta(facts: &mut Facts, said: &Said<'_>) -> Became {
    if said.other("rl").is_some_and(|rl| rl == "grpo") {
        return facts.set_key(keys::GRPO_BETA, said.value, said.place);
    }
    Became::NoMemory(LOSS)
}

pub(super) fn new_tokens(_: &mut Facts, said: &Said<'_>) -> Became {
    let count = said.value.as_array().map_or(0, Vec::len);
    match count {
        0 => Became::NoMemory(TOKENS),
        _ => Became::Noted(format!("{count} tokens more may make the vocabulary as many rows longer"), Allowance::None),
    }
}

/// Fields of the model's config.
pub(super) fn model_config(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.value {
        value if is_null(value) => Became::NoMemory(OFF),
        Value::Object(fields) if fields.keys().all(|key| key == "output_router_logits" || key.starts_with("rope")) => {
            let _ = facts;
            Became::NoMemory("positions of tokens, and the router's own loss: no size")
        }
        _ => Became::Refused(
            "fields of the model's config are not read here: say each with --set model.FIELD=VALUE".to_owned(),
        ),
    }
}

/// Whether a quantized model that is sharded reaches the GPU in parts (loaders/model.py; load_sharded_model_quant).
fn packs_on_the_host(facts: &Facts, file: &[Entry]) -> bool {
    let Some(table) = find_entry(file, "fsdp_config") else { return false };
    let table = table.node.value();
    let is_said = |name: &str| table.get(name).is_some_and(is_on);
    let is_efficient = is_said("fsdp_cpu_ram_efficient_loading") || is_said("cpu_ram_efficient_loading");
    is_efficient && facts.value_of(keys::QUANTIZATION).is_some()
}

/// Axolotl's own defaults and what it does beside.
pub fn finish_axolotl(facts: &mut Facts, file: &[Entry]) {
    // What is generated is not simulated there.
    if find_entry(file, "rl").is_some_and(|entry| plain_text(&entry.node.value()) == "ebft") {
        let generates = [keys::COMPLETION_LEN, keys::NUM_GENERATIONS, keys::GRPO_NUM_ITERATIONS, keys::GRPO_BETA];
        facts.sets.retain(|given| !generates.contains(&given.key.as_str()));
    }
    let task = facts.value_of(keys::TASK).unwrap_or("causal_lm").to_owned();
    facts.imply_key(keys::TASK, &task, "a config of Axolotl without `rl` trains on next tokens");
    facts.imply_key(
        keys::FRAMEWORK,
        if matches!(task.as_str(), "causal_lm" | "token_classification") { "trainer" } else { "trl" },
        "Axolotl trains with the Trainer's loop, or TRL's",
    );
    facts.imply_key(keys::OPTIMIZER, "adamw_fused", "Axolotl's optimizer: adamw_torch_fused");
    if find_entry(file, "adapter").is_none_or(|entry| is_null(&entry.node.value())) {
        facts.imply_key(keys::GRADIENT_CHECKPOINTING, false, "Axolotl's default");
    }
    let answers = ["dpo", "kto", "orpo", "cpo"].contains(&task.as_str());
    if answers || task == "grpo" {
        // Rows are prompts and answers.
        if let Some(length) = facts.size_of(keys::SEQ_LEN) {
            facts.sets.retain(|given| given.key != keys::SEQ_LEN);
            if answers {
                facts.imply_key(keys::PROMPT_LEN, (length / 2).max(1), "half of sequence_len");
                facts.imply_key(keys::COMPLETION_LEN, length.saturating_sub(length / 2).max(1), "half of sequence_len");
            }
        }
    }
    let has_adapters = find_entry(file, "adapter").is_some_and(|entry| !is_null(&entry.node.value()));
    if ["kto", "cpo"].contains(&task.as_str()) && !has_adapters {
        facts.left_open.push(LeftOpen {
            text: "without adapters Axolotl loads a reference that this trainer is never given: a model more, which is not simulated"
                .to_owned(),
            allowance: Allowance::Unknown,
        });
    }
    if packs_on_the_host(facts, file) {
        facts.left_open.push(LeftOpen {
            text:
                "weights are packed on the host here (cpu_ram_efficient_loading): loading takes less than is estimated"
                    .to_owned(),
            allowance: Allowance::Less,
        });
    }
    facts.left_open.push(LeftOpen {
        text: "Axolotl trains with the Trainer's loop; what its own patches change was not measured, the range allows a fifth of \
               the peak"
            .to_owned(),
        allowance: Allowance::Fifth,
    });
}
