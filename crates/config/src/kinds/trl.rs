//! TRL 1.16: `SFTConfig`, `DPOConfig`, which trainer a config is of, `ModelConfig` and `ScriptArguments`, as its command line and YAML take them.

use serde_json::Value;
use tonnage_core::job::{Allowance, LeftOpen, keys};

use super::peft::{self, ONLY_QUANTIZED};
use super::preference::is_kto;
use super::quantized;
use super::trainer::{attention, dtype, offloaded_activations};
use super::words::{CODE, DATA, HUB, LOGS, LOSS, NAME, PACKING, QUANTIZED, SCALAR, TOKENS};
use crate::facts::{Dtype, Facts, Weights};
use crate::rule::Rule::{Inside, Notes, Reads, Refuses, Sets};
use crate::rule::{Became, Free, OFF, Row, Rule, Said, Table};
use crate::tree::{Entry, find_entry, is_null, is_on, plain_text};

/// TRL's trainers that are simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trainer {
    /// `SFTTrainer`
    Sft,
    /// `DPOTrainer`
    Dpo,
    /// `GRPOTrainer`
    Grpo,
    /// `RLOOTrainer`
    Rloo,
    /// `KTOTrainer`
    Kto,
    /// `ORPOTrainer`
    Orpo,
    /// `CPOTrainer`
    Cpo,
}

/// Keys that only one trainer has.
const GRPO_ONLY: [&str; 5] =
    ["num_generations", "max_completion_length", "num_iterations", "steps_per_generation", "reward_weights"];
const DPO_ONLY: [&str; 5] =
    ["precompute_ref_log_probs", "sync_ref_model", "f_divergence_type", "rpo_alpha", "precompute_ref_batch_size"];

const RLOO_ONLY: [&str; 2] = ["normalize_advantages", "reward_clip_range"];
const KTO_ONLY: [&str; 2] = ["desirable_weight", "undesirable_weight"];
const CPO_ONLY: [&str; 2] = ["cpo_alpha", "simpo_gamma"];

/// The trainer whose keys these are.
pub fn guess_trainer(file: &[Entry]) -> Trainer {
    let has = |keys: &[&str]| keys.iter().any(|key| find_entry(file, key).is_some());
    let loss = find_entry(file, "loss_type").map(|entry| plain_text(&entry.node.value())).unwrap_or_default();
    if has(&RLOO_ONLY) {
        Trainer::Rloo
    } else if has(&GRPO_ONLY) {
        Trainer::Grpo
    } else if has(&KTO_ONLY) || is_kto(&loss) {
        Trainer::Kto
    } else if has(&CPO_ONLY) {
        Trainer::Cpo
    } else if has(&DPO_ONLY) || has(&["beta"]) && has(&["loss_type", "max_prompt_length", "max_length"]) {
        Trainer::Dpo
    } else {
        Trainer::Sft
    }
}

const ALL_POSITIONS: &str = "every position is taken to have a label: with fewer it takes no more";
const AUX: &str = "the router's own loss: a number";

/// `SFTConfig`, beside `TrainingArguments`.
pub const SFT: &[Row] = &[
    ("max_length", Reads(sft_length)),
    ("max_seq_length", Reads(old_length)),
    ("packing", Reads(packing)),
    ("packing_strategy", Rule::Free("only packing reads it")),
    ("padding_free", Sets(keys::PADDING_FREE)),
    ("eval_packing", Rule::Free(super::words::EVAL)),
    ("loss_type", Reads(sft_loss)),
    ("completion_only_loss", Notes(ALL_POSITIONS, Allowance::None)),
    ("assistant_only_loss", Notes(ALL_POSITIONS, Allowance::None)),
    ("num_of_sequences", Rule::Free(DATA)),
    ("chars_per_token", Rule::Free(DATA)),
    (
        "neftune_noise_alpha",
        Notes("NEFTune's noise was not measured; the range allows a fifth of the peak", Allowance::Fifth),
    ),
    ("eos_token", Rule::Free(TOKENS)),
];

/// `DPOConfig`, beside `TrainingArguments`.
pub const DPO: &[Row] = &[
    ("max_length", Reads(answer_length)),
    ("max_prompt_length", Sets(keys::PROMPT_LEN)),
    ("max_completion_length", Sets(keys::COMPLETION_LEN)),
    ("precompute_ref_log_probs", Sets(keys::DPO_PRECOMPUTE_REF_LOG_PROBS)),
    ("precompute_ref_batch_size", Rule::Free("rows of a pass before training, without gradients")),
    ("padding_free", Notes(PACKING, Allowance::Fifth)),
    ("loss_type", Reads(dpo_loss)),
    ("loss_weights", Rule::Free(LOSS)),
    ("ld_alpha", Notes("length desensitization computes two sums more, which are not simulated", Allowance::Fifth)),
    ("f_divergence_type", Rule::Free(LOSS)),
    ("f_alpha_divergence_coef", Rule::Free(LOSS)),
    ("label_smoothing", Rule::Free(LOSS)),
    ("beta", Rule::Free(LOSS)),
    ("use_weighting", Notes("WPO's weights are computed from all logits, which is not simulated", Allowance::Unknown)),
    ("discopop_tau", Rule::Free(LOSS)),
    (
        "rpo_alpha",
        Notes(
            "the added loss of the chosen answers is not simulated; the range allows a fifth of the peak",
            Allowance::Fifth,
        ),
    ),
    ("reference_free", Notes("without a reference it takes no more than is estimated", Allowance::Less)),
    ("generate_during_eval", Notes("an evaluation that generates is not simulated", Allowance::Unknown)),
    ("is_encoder_decoder", Refuses("encoder-decoders are not simulated")),
    (
        "force_use_ref_model",
        Notes("a second model beside adapters is not simulated: it takes its weights more", Allowance::Unknown),
    ),
    ("use_logits_to_keep", Rule::Free("logits of the answers alone: it takes no more")),
    ("tools", Rule::Free(DATA)),
    ("base_model_attribute_name", Rule::Free(NAME)),
    ("model_adapter_name", Rule::Free(NAME)),
    ("ref_adapter_name", Notes("a second adapter as the reference is not simulated", Allowance::Fifth)),
];

/// What all configs of TRL add, `ModelConfig` and `ScriptArguments`.
pub const SHARED: Table = Table { rows: SHARED_ROWS, free: SHARED_FREE };

/// Of these the reason is one of a few.
const SHARED_FREE: &[Free] = &[
    (CODE, "trust_remote_code"),
    (AUX, "router_aux_loss_coef"),
    (TOKENS, "chat_template_path chat_template pad_token padding_value label_pad_token_id system_prompt"),
    (
        DATA,
        "dataset_text_field dataset_kwargs dataset_num_proc dataset_batch_size shuffle_dataset truncation_mode \
        dataset_name dataset_config dataset_train_split dataset_test_split dataset_train_name dataset_test_name \
        dataset_streaming datasets dataset_mixture dataset_mixer dataset_splits dataset_prompt_column",
    ),
    (SCALAR, "ref_model_mixup_alpha ref_model_sync_steps use_rslora"),
    (HUB, "model_revision"),
    (NAME, "lora_task_type config"),
    (LOGS, "wandb_entity wandb_project"),
];

const SHARED_ROWS: &[Row] = &[
    ("model_init_kwargs", Inside(MODEL_INIT)),
    ("pad_to_multiple_of", Reads(padding_free)),
    ("disable_dropout", Reads(no_dropout)),
    ("activation_offloading", Reads(offloaded_activations)),
    (
        "sync_ref_model",
        Notes("a reference that follows the policy is a model beside it; the range allows a fifth", Allowance::Fifth),
    ),
    ("model_name_or_path", Sets(keys::MODEL)),
    ("torch_dtype", Reads(old_dtype)),
    ("dtype", Reads(dtype)),
    ("attn_implementation", Reads(attention)),
    ("use_peft", Reads(lora_adapters)),
    ("lora_r", Reads(|facts, said| of_adapters(facts, said, keys::LORA_R))),
    ("lora_alpha", Reads(|facts, said| of_adapters(facts, said, keys::LORA_ALPHA))),
    ("lora_dropout", Reads(|facts, said| of_adapters(facts, said, keys::LORA_DROPOUT))),
    ("lora_target_modules", Reads(lora_targets)),
    ("lora_target_parameters", Notes(peft::OTHER_TARGETS, Allowance::Unknown)),
    ("lora_modules_to_save", Reads(modules_to_save)),
    ("use_dora", Reads(|facts, said| of_adapters(facts, said, keys::LORA_USE_DORA))),
    ("load_in_8bit", Reads(quantized::eight_bit)),
    ("load_in_4bit", Reads(quantized::four_bit_of_trl)),
    ("bnb_4bit_quant_type", Rule::Free("`load_in_4bit` reads it")),
    ("use_bnb_nested_quant", Reads(quantized::double)),
    ("bnb_4bit_quant_storage", Rule::Free(ONLY_QUANTIZED)),
    ("ignore_bias_buffers", Rule::Free("which buffers DDP sends")),
    (
        "gradient_checkpointing_use_reentrant",
        Notes("checkpointing with use_reentrant=True was not measured; the range allows a fifth", Allowance::Fifth),
    ),
    ("env", Rule::Free("variables of the environment")),
];

/// What `from_pretrained` is told.
const MODEL_INIT: &[Row] = &[
    ("dtype", Reads(dtype)),
    ("torch_dtype", Reads(old_dtype)),
    ("attn_implementation", Reads(attention)),
    ("use_cache", Rule::Free("the trainer's own use_cache holds")),
    ("trust_remote_code", Rule::Free(CODE)),
    ("revision", Rule::Free(HUB)),
    ("low_cpu_mem_usage", Rule::Free("how weights reach the host")),
    ("device_map", Reads(device_map)),
    ("quantization_config", Refuses(QUANTIZED)),
    ("load_in_4bit", Refuses(QUANTIZED)),
    ("load_in_8bit", Refuses(QUANTIZED)),
];

pub(super) fn device_map(facts: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.set_text(keys::DEVICE_MAP, true, said.place);
    Became::Used(keys::DEVICE_MAP)
}

fn sft_length(facts: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) {
        let text = "rows are not cut: how long they are, the data decides; say --seq-len";
        return Became::Noted(text.to_owned(), Allowance::Unknown);
    }
    facts.set_key(keys::SEQ_LEN, said.value, said.place)
}

/// `torch_dtype`, which TRL 1.16 does not read (ModelConfig and create_model_from_path know `dtype`): the weights are fp32 then.
fn old_dtype(_: &mut Facts, said: &Said<'_>) -> Became {
    if said.other("dtype").is_some() {
        return Became::NoMemory("`dtype` is said beside it");
    }
    let text = "TRL 1.16 reads `dtype` and leaves this older name unread: weights are loaded in fp32, as is estimated; with an older \
                TRL say --precision bf16-amp";
    Became::Noted(text.to_owned(), Allowance::None)
}

/// `max_seq_length`, which TRL 1.16 does not read: it cuts at `max_length`, 1024. The longer of both is taken.
fn old_length(facts: &mut Facts, said: &Said<'_>) -> Became {
    let Some(length) = said.value.as_u64() else { return sft_length(facts, said) };
    if said.other("max_length").is_some() {
        return Became::NoMemory("`max_length` is said beside it");
    }
    facts.set_text(keys::SEQ_LEN, length.max(1024), said.place);
    let text = "TRL 1.16 reads `max_length` and leaves this older name unread, cutting rows at 1024 tokens; the longer of both is \
                estimated";
    Became::Noted(text.to_owned(), Allowance::None)
}

/// `packing`: with its default strategy documents lie end to end in one row, with `wrapped` they are cut to rows of one length.
fn packing(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    if said.other("packing_strategy").is_some_and(|strategy| strategy == "wrapped") {
        facts.set_text(keys::PADDED, false, said.place);
        return Became::Used(keys::PADDED);
    }
    facts.set_text(keys::PADDING_FREE, true, said.place);
    Became::Used(keys::PADDING_FREE)
}

fn sft_loss(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "nll" | "dft" => Became::NoMemory(LOSS),
        _ => Became::Noted(
            "another loss than nll was not measured; the range allows a fifth".to_owned(),
            Allowance::Fifth,
        ),
    }
}

/// Prompt and answer together; where nobody divides them, half of either.
pub(super) fn answer_length(facts: &mut Facts, said: &Said<'_>) -> Became {
    let Some(length) = said.value.as_u64() else {
        let text = "rows are not cut: how long they are, the data decides; say --prompt-len and --completion-len";
        return Became::Noted(text.to_owned(), Allowance::Unknown);
    };
    let size = |key: &str| said.other(key).and_then(|value| value.as_u64());
    let prompt = size("max_prompt_length").unwrap_or(length / 2).min(length.saturating_sub(1)).max(1);
    if !facts.is_set(keys::PROMPT_LEN) && size("max_prompt_length").is_none() {
        facts.set_text(keys::PROMPT_LEN, prompt, said.place);
    }
    if size("max_completion_length").is_none() {
        facts.set_text(keys::COMPLETION_LEN, length.saturating_sub(prompt), said.place);
    }
    Became::Used(keys::COMPLETION_LEN)
}

fn dpo_loss(_: &mut Facts, said: &Said<'_>) -> Became {
    let several = said.value.as_array().is_some_and(|losses| losses.len() > 1);
    match said.word().as_str() {
        _ if several => Became::Noted(
            "several losses at once were not measured; the range allows a fifth".to_owned(),
            Allowance::Fifth,
        ),
        _ => Became::NoMemory(LOSS),
    }
}

fn padding_free(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.value {
        Value::Number(_) => Became::NoMemory("rows are taken at their full length"),
        _ => Became::NoMemory(OFF),
    }
}

/// `disable_dropout`: TRL takes the model's dropouts out.
fn no_dropout(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.set_text(keys::DROPOUT, 0.0, said.place);
    Became::Used(keys::DROPOUT)
}

fn lora_adapters(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.imply_key(keys::LORA_R, 16, "TRL 1.16's ModelConfig: lora_r");
    facts.imply_key(keys::LORA_DROPOUT, 0.05, "TRL 1.16's ModelConfig: lora_dropout");
    Became::Used(keys::LORA_R)
}

const NO_ADAPTERS: &str = "no adapters are made: `use_peft` is off";

fn of_adapters(facts: &mut Facts, said: &Said<'_>, key: &'static str) -> Became {
    if !said.other_is_on("use_peft") || is_null(said.value) {
        return Became::NoMemory(NO_ADAPTERS);
    }
    facts.set_key(key, said.value, said.place)
}

/// One word in a list is a word: `all-linear`.
fn lora_targets(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !said.other_is_on("use_peft") {
        return Became::NoMemory(NO_ADAPTERS);
    }
    peft::targets(facts, said)
}

fn modules_to_save(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !said.other_is_on("use_peft") {
        return Became::NoMemory(NO_ADAPTERS);
    }
    peft::modules_to_save(facts, said)
}

/// What the trainer's own defaults are where no key says it.
pub fn finish_trl(facts: &mut Facts, trainer: Trainer, of_command: bool) {
    let task = match trainer {
        Trainer::Sft => "causal_lm",
        Trainer::Dpo => "dpo",
        Trainer::Grpo => "grpo",
        Trainer::Rloo => "rloo",
        Trainer::Kto => "kto",
        Trainer::Orpo => "orpo",
        Trainer::Cpo => "cpo",
    };
    facts.imply_key(keys::TASK, task, "the trainer of the config");
    facts.imply_key(keys::FRAMEWORK, "trl", "the config is TRL's");
    // Scripts of ORPO and CPO load the model themselves.
    if of_command && !matches!(trainer, Trainer::Orpo | Trainer::Cpo) {
        facts.imply_key(keys::DEVICE_MAP, true, "TRL loads models with device_map=\"auto\"");
        // transformers 5.17 over the phantom: at most 0.4 % in fifteen settings, and nothing in the order of the names.
        facts.left_open.push(LeftOpen {
            text: "on one GPU TRL loads weights in four threads, in an order that differs from run to run and decides how closely they lie \
                   (HF_DEACTIVATE_ASYNC_LOAD=1 keeps that of their names): the range allows a fiftieth of the peak"
                .to_owned(),
            allowance: Allowance::Fiftieth,
        });
    }
    // bf16 is None, and then True unless fp16 is (base_config.py).
    let fp16 = matches!(facts.autocast, Some((Some(Dtype::Fp16), _)));
    let is_live = facts.live.is_some();
    let said = facts.autocast.as_ref().is_some_and(|(dtype, place)| dtype.is_some() || place.is_some() || is_live);
    if !fp16 && !said {
        facts.autocast = Some((Some(Dtype::Bf16), None));
    }
    if facts.weights.is_none() {
        // Scripts of ORPO and CPO hand over what from_pretrained loads.
        let is_loaded = matches!(trainer, Trainer::Orpo | Trainer::Cpo);
        facts.weights = Some((if is_loaded { Weights::Published } else { Weights::As(Dtype::Fp32) }, None));
    }
    if matches!(trainer, Trainer::Grpo | Trainer::Rloo) && !facts.is_set(keys::PROMPT_LEN) {
        facts.left_open.push(LeftOpen {
            text: "how long prompts are, the data decides: they are taken as `prompt_len` says".to_owned(),
            allowance: Allowance::None,
        });
    }
}
