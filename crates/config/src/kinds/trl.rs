//! TRL 1.16: `SFTConfig`, `DPOConfig`, `GRPOConfig`, `ModelConfig` and `ScriptArguments`, as its command line and YAML take them.

use serde_json::Value;
use tonnage_core::job::{Allowance, LeftOpen, keys};

use super::peft::{self, ONLY_QUANTIZED};
use super::trainer::{attention, dtype};
use super::words::{CODE, DATA, HUB, LOGS, LOSS, NAME, OFFLOAD, PACKING, QUANTIZED, SAMPLING, SCALAR, SERVER, TOKENS};
use crate::facts::{Dtype, Facts};
use crate::rule::Rule::{Free, Inside, Notes, Reads, Refuses, Sets};
use crate::rule::{Became, OFF, Row, Said};
use crate::tree::{Entry, find, is_null, is_on};

/// TRL's trainers that are simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trainer {
    /// `SFTTrainer`
    Sft,
    /// `DPOTrainer`
    Dpo,
    /// `GRPOTrainer`
    Grpo,
}

/// Keys that only one trainer has.
const GRPO_ONLY: [&str; 5] =
    ["num_generations", "max_completion_length", "num_iterations", "steps_per_generation", "reward_weights"];
const DPO_ONLY: [&str; 5] =
    ["precompute_ref_log_probs", "sync_ref_model", "f_divergence_type", "rpo_alpha", "precompute_ref_batch_size"];

/// The trainer whose keys these are.
pub fn guess(file: &[Entry]) -> Trainer {
    let has = |keys: &[&str]| keys.iter().any(|key| find(file, key).is_some());
    if has(&GRPO_ONLY) {
        Trainer::Grpo
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
    ("max_seq_length", Reads(sft_length)),
    ("packing", Notes(PACKING, Allowance::Fifth)),
    ("packing_strategy", Free("only packing reads it")),
    ("padding_free", Notes(PACKING, Allowance::Fifth)),
    ("eval_packing", Free(super::words::EVAL)),
    ("loss_type", Reads(sft_loss)),
    ("completion_only_loss", Notes(ALL_POSITIONS, Allowance::None)),
    ("assistant_only_loss", Notes(ALL_POSITIONS, Allowance::None)),
    ("num_of_sequences", Free(DATA)),
    ("chars_per_token", Free(DATA)),
    ("neftune_noise_alpha", Notes("NEFTune's noise was not measured; the range allows a fifth of the peak", Allowance::Fifth)),
    ("eos_token", Free(TOKENS)),
];

/// `DPOConfig`, beside `TrainingArguments`.
pub const DPO: &[Row] = &[
    ("max_length", Reads(dpo_length)),
    ("max_prompt_length", Sets(keys::PROMPT_LEN)),
    ("max_completion_length", Sets(keys::COMPLETION_LEN)),
    ("precompute_ref_log_probs", Sets(keys::DPO_PRECOMPUTE_REF_LOG_PROBS)),
    ("precompute_ref_batch_size", Free("rows of a pass before training, without gradients")),
    ("padding_free", Notes(PACKING, Allowance::Fifth)),
    ("loss_type", Reads(dpo_loss)),
    ("loss_weights", Free(LOSS)),
    ("ld_alpha", Notes("length desensitization computes two sums more, which are not simulated", Allowance::Fifth)),
    ("f_divergence_type", Free(LOSS)),
    ("f_alpha_divergence_coef", Free(LOSS)),
    ("label_smoothing", Free(LOSS)),
    ("beta", Free(LOSS)),
    ("use_weighting", Notes("WPO's weights are computed from all logits, which is not simulated", Allowance::Unknown)),
    ("discopop_tau", Free(LOSS)),
    ("rpo_alpha", Notes("the added loss of the chosen answers is not simulated; the range allows a fifth of the peak", Allowance::Fifth)),
    ("reference_free", Notes("without a reference it takes no more than is estimated", Allowance::Less)),
    ("generate_during_eval", Notes("an evaluation that generates is not simulated", Allowance::Unknown)),
    ("is_encoder_decoder", Refuses("encoder-decoders are not simulated")),
    ("force_use_ref_model", Notes("a second model beside adapters is not simulated: it takes its weights more", Allowance::Unknown)),
    ("use_logits_to_keep", Free("logits of the answers alone: it takes no more")),
    ("tools", Free(DATA)),
    ("base_model_attribute_name", Free(NAME)),
    ("model_adapter_name", Free(NAME)),
    ("ref_adapter_name", Notes("a second adapter as the reference is not simulated", Allowance::Fifth)),
];

/// `GRPOConfig`, beside `TrainingArguments`.
pub const GRPO: &[Row] = &[
    ("max_prompt_length", Reads(prompt_length)),
    ("max_completion_length", Sets(keys::COMPLETION_LEN)),
    ("num_generations", Sets(keys::NUM_GENERATIONS)),
    ("num_generations_eval", Free(super::words::EVAL)),
    ("num_iterations", Sets(keys::GRPO_NUM_ITERATIONS)),
    ("steps_per_generation", Sets(keys::GRPO_STEPS_PER_GENERATION)),
    ("generation_batch_size", Reads(generation_batch)),
    ("beta", Sets(keys::GRPO_BETA)),
    ("cast_lm_head_to_fp32", Sets(keys::GRPO_CAST_LM_HEAD_TO_FP32)),
    ("use_vllm", Reads(use_vllm)),
    ("vllm_mode", Reads(vllm_mode)),
    ("vllm_gpu_memory_utilization", Reads(|facts, said| of_engine(facts, said, keys::VLLM_GPU_MEMORY_UTILIZATION))),
    ("vllm_enable_sleep_mode", Reads(|facts, said| of_engine(facts, said, keys::VLLM_SLEEP_MODE))),
    ("vllm_tensor_parallel_size", Reads(engine_ranks)),
    ("vllm_model_impl", Free("which modeling code the engine runs: its share of the GPU is fixed")),
    ("vllm_max_model_length", Free("the engine's share of the GPU is fixed")),
    ("vllm_max_model_len", Free("the engine's share of the GPU is fixed")),
    ("vllm_dtype", Free("the engine's share of the GPU is fixed")),
    ("vllm_enable_prefix_caching", Free("the engine's share of the GPU is fixed")),
    ("vllm_device", Reads(vllm_device)),
    ("vllm_structured_outputs_regex", Free(SAMPLING)),
    ("vllm_guided_decoding_regex", Free(SAMPLING)),
    ("vllm_server_base_url", Free(SERVER)),
    ("vllm_server_host", Free(SERVER)),
    ("vllm_server_port", Free(SERVER)),
    ("vllm_server_timeout", Free(SERVER)),
    ("vllm_group_port", Free(SERVER)),
    ("vllm_importance_sampling_correction", Free(LOSS)),
    ("vllm_importance_sampling_mode", Free(LOSS)),
    ("vllm_importance_sampling_clip_max", Free(LOSS)),
    ("vllm_importance_sampling_clip_min", Free(LOSS)),
    ("vllm_importance_sampling_cap", Free(LOSS)),
    ("ds3_gather_for_generation", Notes("generation on weights that are not gathered is not simulated", Allowance::None)),
    ("temperature", Free(SAMPLING)),
    ("top_p", Free(SAMPLING)),
    ("top_k", Free(SAMPLING)),
    ("min_p", Free(SAMPLING)),
    ("repetition_penalty", Free(SAMPLING)),
    ("generation_kwargs", Free(SAMPLING)),
    ("chat_template_kwargs", Free(TOKENS)),
    ("cache_implementation", Notes("another KV cache than the growing one is not simulated; the range allows a fifth", Allowance::Fifth)),
    ("epsilon", Free(LOSS)),
    ("epsilon_high", Free(LOSS)),
    ("delta", Free(LOSS)),
    ("sapo_temperature_neg", Free(LOSS)),
    ("sapo_temperature_pos", Free(LOSS)),
    ("vespo_k_pos", Free(LOSS)),
    ("vespo_lambda_pos", Free(LOSS)),
    ("vespo_k_neg", Free(LOSS)),
    ("vespo_lambda_neg", Free(LOSS)),
    ("importance_sampling_level", Free(LOSS)),
    ("reward_weights", Free(LOSS)),
    ("reward_funcs", Free("functions of texts, which run on the host; a reward model is --judge-model")),
    ("reward_model_name_or_path", Reads(reward_model)),
    ("multi_objective_aggregation", Free(LOSS)),
    ("scale_rewards", Free(LOSS)),
    ("loss_type", Free(LOSS)),
    ("mask_truncated_completions", Free(LOSS)),
    ("top_entropy_quantile", Notes("entropies of all tokens are not simulated; the range allows a fifth of the peak", Allowance::Fifth)),
    ("entropy_coef", Notes("a loss of entropies keeps more, which is not simulated", Allowance::Unknown)),
    ("use_adaptive_entropy", Notes("a loss of entropies keeps more, which is not simulated", Allowance::Unknown)),
    ("entropy_coef_min", Free(LOSS)),
    ("entropy_coef_max", Free(LOSS)),
    ("entropy_coef_delta", Free(LOSS)),
    ("entropy_target", Free(LOSS)),
    ("max_tool_calling_iterations", Free("turns of a conversation; rows are taken at their full length")),
    ("off_policy_mask_threshold", Free(LOSS)),
    ("use_bias_correction_kl", Free(LOSS)),
    ("log_completions", Free(LOGS)),
    ("log_multimodal", Free(LOGS)),
    ("num_completions_to_print", Free(LOGS)),
    ("wandb_log_unique_prompts", Free(LOGS)),
    ("log_unique_prompts", Free(LOGS)),
    ("log_completions_hub_repo", Free(LOGS)),
    ("use_transformers_continuous_batching", Notes("transformers' continuous batching is not simulated", Allowance::Unknown)),
    ("transformers_continuous_batching_config", Free("only continuous batching reads it")),
    ("use_transformers_paged", Notes("transformers' paged generation is not simulated", Allowance::Unknown)),
    ("use_liger_loss", Notes("Liger's GRPO loss is not simulated; the range allows a fifth of the peak", Allowance::Fifth)),
];

/// What all configs of TRL add, `ModelConfig` and `ScriptArguments`.
pub const SHARED: &[Row] = &[
    ("model_init_kwargs", Inside(MODEL_INIT)),
    ("trust_remote_code", Free(CODE)),
    ("router_aux_loss_coef", Free(AUX)),
    ("chat_template_path", Free(TOKENS)),
    ("chat_template", Free(TOKENS)),
    ("dataset_text_field", Free(DATA)),
    ("dataset_kwargs", Free(DATA)),
    ("dataset_num_proc", Free(DATA)),
    ("dataset_batch_size", Free(DATA)),
    ("shuffle_dataset", Free(DATA)),
    ("truncation_mode", Free(DATA)),
    ("pad_to_multiple_of", Reads(padded)),
    ("pad_token", Free(TOKENS)),
    ("padding_value", Free(TOKENS)),
    ("label_pad_token_id", Free(TOKENS)),
    ("disable_dropout", Reads(no_dropout)),
    ("activation_offloading", Notes(OFFLOAD, Allowance::Less)),
    ("sync_ref_model", Notes("a reference that follows the policy is a model beside it; the range allows a fifth", Allowance::Fifth)),
    ("ref_model_mixup_alpha", Free(SCALAR)),
    ("ref_model_sync_steps", Free(SCALAR)),
    ("model_name_or_path", Sets(keys::MODEL)),
    ("model_revision", Free(HUB)),
    ("torch_dtype", Reads(dtype)),
    ("dtype", Reads(dtype)),
    ("attn_implementation", Reads(attention)),
    ("use_peft", Reads(adapters)),
    ("lora_r", Reads(|facts, said| of_adapters(facts, said, keys::LORA_R))),
    ("lora_alpha", Reads(|facts, said| of_adapters(facts, said, keys::LORA_ALPHA))),
    ("lora_dropout", Reads(|facts, said| of_adapters(facts, said, keys::LORA_DROPOUT))),
    ("lora_target_modules", Reads(targets)),
    ("lora_target_parameters", Notes(peft::OTHER_TARGETS, Allowance::Unknown)),
    ("lora_modules_to_save", Reads(modules_to_save)),
    ("lora_task_type", Free(NAME)),
    ("use_rslora", Free(SCALAR)),
    ("use_dora", Notes(peft::DORA, Allowance::Unknown)),
    ("load_in_8bit", Refuses(QUANTIZED)),
    ("load_in_4bit", Refuses(QUANTIZED)),
    ("bnb_4bit_quant_type", Free(ONLY_QUANTIZED)),
    ("use_bnb_nested_quant", Free(ONLY_QUANTIZED)),
    ("bnb_4bit_quant_storage", Free(ONLY_QUANTIZED)),
    ("dataset_name", Free(DATA)),
    ("dataset_config", Free(DATA)),
    ("dataset_train_split", Free(DATA)),
    ("dataset_test_split", Free(DATA)),
    ("dataset_train_name", Free(DATA)),
    ("dataset_test_name", Free(DATA)),
    ("dataset_streaming", Free(DATA)),
    ("datasets", Free(DATA)),
    ("ignore_bias_buffers", Free("which buffers DDP sends")),
    ("gradient_checkpointing_use_reentrant", Notes("checkpointing with use_reentrant=True was not measured; the range allows a fifth", Allowance::Fifth)),
    ("config", Free(NAME)),
    ("env", Free("variables of the environment")),
];

/// What `from_pretrained` is told.
const MODEL_INIT: &[Row] = &[
    ("dtype", Reads(dtype)),
    ("torch_dtype", Reads(dtype)),
    ("attn_implementation", Reads(attention)),
    ("use_cache", Free("the trainer's own use_cache holds")),
    ("trust_remote_code", Free(CODE)),
    ("revision", Free(HUB)),
    ("low_cpu_mem_usage", Free("how weights reach the host")),
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
    facts.set(keys::SEQ_LEN, said.value, said.place)
}

fn sft_loss(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "nll" | "dft" => Became::NoMemory(LOSS),
        _ => Became::Noted("another loss than nll was not measured; the range allows a fifth".to_owned(), Allowance::Fifth),
    }
}

/// Prompt and answer together; where nobody divides them, half of either.
fn dpo_length(facts: &mut Facts, said: &Said<'_>) -> Became {
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
        _ if several => Became::Noted("several losses at once were not measured; the range allows a fifth".to_owned(), Allowance::Fifth),
        _ => Became::NoMemory(LOSS),
    }
}

fn prompt_length(facts: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) {
        return Became::NoMemory("prompts are not cut: they are taken as the job's `prompt_len` says");
    }
    facts.set(keys::PROMPT_LEN, said.value, said.place)
}

/// `generation_batch_size`: rows of all processes that are generated at once.
fn generation_batch(facts: &mut Facts, said: &Said<'_>) -> Became {
    let Some(rows) = said.value.as_u64() else { return Became::NoMemory(OFF) };
    let train = said.other("per_device_train_batch_size").and_then(|value| value.as_u64()).unwrap_or(8);
    let of_all = train.saturating_mul(facts.size(keys::WORLD_SIZE).unwrap_or(1)).max(1);
    if !rows.is_multiple_of(of_all) {
        return Became::Refused(format!("{rows} rows do not divide by the {of_all} of a pass of all processes"));
    }
    facts.set_text(keys::GRPO_STEPS_PER_GENERATION, rows / of_all, said.place);
    Became::Used(keys::GRPO_STEPS_PER_GENERATION)
}

const ELSEWHERE: &str = "completions come from a server's GPUs; estimated is generate in the trainer's process, which takes no less";

fn runs_inside(said: &Said<'_>) -> bool {
    said.other_is_on("use_vllm") && said.other("vllm_mode").is_none_or(|mode| mode == "colocate")
}

fn use_vllm(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    if !runs_inside(said) {
        return Became::Noted(ELSEWHERE.to_owned(), Allowance::Less);
    }
    facts.set_text(keys::GRPO_ROLLOUT, "vllm", said.place);
    Became::Used(keys::GRPO_ROLLOUT)
}

fn vllm_mode(_: &mut Facts, said: &Said<'_>) -> Became {
    if said.other_is_on("use_vllm") { Became::Used(keys::GRPO_ROLLOUT) } else { Became::NoMemory(OFF) }
}

fn vllm_device(_: &mut Facts, said: &Said<'_>) -> Became {
    if !said.other_is_on("use_vllm") {
        return Became::NoMemory(OFF);
    }
    Became::Noted("which GPU the engine takes is not told: it is simulated beside the trainer".to_owned(), Allowance::Less)
}

fn of_engine(facts: &mut Facts, said: &Said<'_>, key: &'static str) -> Became {
    if !runs_inside(said) || is_null(said.value) {
        return Became::NoMemory("no engine runs in the trainer's process");
    }
    facts.set(key, said.value, said.place)
}

fn engine_ranks(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_u64() {
        Some(ranks) if ranks > 1 && runs_inside(said) => {
            Became::Noted("an engine over several GPUs is not simulated; its share of each is".to_owned(), Allowance::Fifth)
        }
        _ => Became::NoMemory("one process, or none of the trainer's"),
    }
}

fn reward_model(facts: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.set_text(keys::JUDGE_PHASE, "forward", said.place);
    facts.set(keys::JUDGE_MODEL, said.value, said.place)
}

fn padded(_: &mut Facts, said: &Said<'_>) -> Became {
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

fn adapters(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.imply(keys::LORA_R, 16, "TRL 1.16's ModelConfig: lora_r");
    facts.imply(keys::LORA_DROPOUT, 0.05, "TRL 1.16's ModelConfig: lora_dropout");
    Became::Used(keys::LORA_R)
}

const NO_ADAPTERS: &str = "no adapters are made: `use_peft` is off";

fn of_adapters(facts: &mut Facts, said: &Said<'_>, key: &'static str) -> Became {
    if !said.other_is_on("use_peft") || is_null(said.value) {
        return Became::NoMemory(NO_ADAPTERS);
    }
    facts.set(key, said.value, said.place)
}

/// One word in a list is a word: `all-linear`.
fn targets(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !said.other_is_on("use_peft") {
        return Became::NoMemory(NO_ADAPTERS);
    }
    peft::targets(facts, said)
}

fn modules_to_save(_: &mut Facts, said: &Said<'_>) -> Became {
    if !said.other_is_on("use_peft") || !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    Became::Noted(peft::MODULES_TO_SAVE.to_owned(), Allowance::Unknown)
}

/// What the trainer's own defaults are where no key says it.
pub fn finish(facts: &mut Facts, trainer: Trainer, of_command: bool) {
    let task = match trainer {
        Trainer::Sft => "causal_lm",
        Trainer::Dpo => "dpo",
        Trainer::Grpo => "grpo",
    };
    facts.imply(keys::TASK, task, "the trainer of the config");
    facts.imply(keys::FRAMEWORK, "trl", "the config is TRL's");
    if of_command {
        facts.imply(keys::DEVICE_MAP, true, "TRL loads models with device_map=\"auto\"");
    }
    // bf16 is None, and then True unless fp16 is (base_config.py).
    let fp16 = matches!(facts.autocast, Some((Some(Dtype::Fp16), _)));
    let said = facts.autocast.as_ref().is_some_and(|(dtype, place)| dtype.is_some() || place.is_some());
    if !fp16 && !said {
        facts.autocast = Some((Some(Dtype::Bf16), None));
    }
    if facts.weights.is_none() {
        facts.weights = Some((crate::facts::Weights::As(Dtype::Fp32), None));
    }
    if trainer == Trainer::Grpo && !facts.is_set(keys::PROMPT_LEN) {
        facts.left_open.push(LeftOpen {
            text: "how long prompts are, the data decides: they are taken as `prompt_len` says".to_owned(),
            allowance: Allowance::None,
        });
    }
}
