//! TRL's `GRPOConfig`, beside what all configs of TRL have.

use tonnage_core::job::{Allowance, keys};

use super::words::{LOGS, LOSS, SAMPLING, SERVER, TOKENS};
use crate::facts::Facts;
use crate::rule::Rule::{Notes, Reads, Sets};
use crate::rule::{Became, Free, OFF, Row, Rule, Said, Table};
use crate::tree::{is_null, is_on};

/// `GRPOConfig`, beside `TrainingArguments`.
pub const GRPO: Table = Table { rows: GRPO_ROWS, free: GRPO_FREE };

/// Of these the reason is one of a few.
const GRPO_FREE: &[Free] = &[
    (super::words::EVAL, "num_generations_eval"),
    (
        SAMPLING,
        "vllm_structured_outputs_regex vllm_guided_decoding_regex temperature top_p top_k min_p repetition_penalty \
        generation_kwargs",
    ),
    (SERVER, "vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout vllm_group_port"),
    (
        LOSS,
        "vllm_importance_sampling_correction vllm_importance_sampling_mode vllm_importance_sampling_clip_max \
        vllm_importance_sampling_clip_min vllm_importance_sampling_cap epsilon epsilon_high delta sapo_temperature_neg \
        sapo_temperature_pos vespo_k_pos vespo_lambda_pos vespo_k_neg vespo_lambda_neg importance_sampling_level \
        reward_weights multi_objective_aggregation scale_rewards loss_type mask_truncated_completions entropy_coef_min \
        entropy_coef_max entropy_coef_delta entropy_target off_policy_mask_threshold use_bias_correction_kl",
    ),
    (TOKENS, "chat_template_kwargs"),
    (
        LOGS,
        "log_completions log_multimodal num_completions_to_print wandb_log_unique_prompts log_unique_prompts \
        log_completions_hub_repo",
    ),
];

const GRPO_ROWS: &[Row] = &[
    ("max_prompt_length", Reads(prompt_length)),
    ("max_completion_length", Sets(keys::COMPLETION_LEN)),
    ("num_generations", Sets(keys::NUM_GENERATIONS)),
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
    ("vllm_model_impl", Rule::Free("which modeling code the engine runs: its share of the GPU is fixed")),
    ("vllm_max_model_length", Rule::Free("the engine's share of the GPU is fixed")),
    ("vllm_max_model_len", Rule::Free("the engine's share of the GPU is fixed")),
    ("vllm_dtype", Rule::Free("the engine's share of the GPU is fixed")),
    ("vllm_enable_prefix_caching", Rule::Free("the engine's share of the GPU is fixed")),
    ("vllm_device", Reads(vllm_device)),
    ("ds3_gather_for_generation", Reads(gathers)),
    (
        "cache_implementation",
        Notes("another KV cache than the growing one is not simulated; the range allows a fifth", Allowance::Fifth),
    ),
    ("reward_funcs", Rule::Free("functions of texts, which run on the host; a reward model is --judge-model")),
    ("reward_model_name_or_path", Reads(reward_model)),
    ("top_entropy_quantile", Reads(top_entropy)),
    ("entropy_coef", Notes("a loss of entropies keeps more, which is not simulated", Allowance::Unknown)),
    ("use_adaptive_entropy", Notes("a loss of entropies keeps more, which is not simulated", Allowance::Unknown)),
    ("max_tool_calling_iterations", Rule::Free("turns of a conversation; rows are taken at their full length")),
    (
        "use_transformers_continuous_batching",
        Notes("transformers' continuous batching is not simulated", Allowance::Unknown),
    ),
    ("transformers_continuous_batching_config", Rule::Free("only continuous batching reads it")),
    ("use_transformers_paged", Notes("transformers' paged generation is not simulated", Allowance::Unknown)),
    (
        "use_liger_loss",
        Notes("Liger's GRPO loss is not simulated; the range allows a fifth of the peak", Allowance::Fifth),
    ),
];

/// On, as by default, ZeRO-3 gathers all weights to generate.
fn gathers(_: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) || is_on(said.value) {
        return Became::NoMemory("only DeepSpeed's ZeRO-3 reads it");
    }
    Became::Noted("generation on weights that are not gathered is not simulated".to_owned(), Allowance::None)
}

/// At 1, the default, no token is left out and no entropy is asked for (TRL 1.16, grpo_trainer.py).
fn top_entropy(_: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) || said.value.as_f64().is_some_and(|quantile| quantile >= 1.0) {
        return Became::NoMemory(OFF);
    }
    let text = "entropies of all tokens are not simulated; the range allows a fifth of the peak";
    Became::Noted(text.to_owned(), Allowance::Fifth)
}

fn prompt_length(facts: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) {
        return Became::NoMemory("prompts are not cut: they are taken as the job's `prompt_len` says");
    }
    facts.set_key(keys::PROMPT_LEN, said.value, said.place)
}

/// `generation_batch_size`: rows of all processes that are generated at once.
fn generation_batch(facts: &mut Facts, said: &Said<'_>) -> Became {
    let Some(rows) = said.value.as_u64() else { return Became::NoMemory(OFF) };
    let train = said.other("per_device_train_batch_size").and_then(|value| value.as_u64()).unwrap_or(8);
    let of_all = train.saturating_mul(facts.size_of(keys::WORLD_SIZE).unwrap_or(1)).max(1);
    if !rows.is_multiple_of(of_all) {
        return Became::Refused(format!("{rows} rows do not divide by the {of_all} of a pass of all processes"));
    }
    facts.set_text(keys::GRPO_STEPS_PER_GENERATION, rows / of_all, said.place);
    Became::Used(keys::GRPO_STEPS_PER_GENERATION)
}

const ELSEWHERE: &str =
    "completions come from a server's GPUs; estimated is generate in the trainer's process, which takes no less";

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
    Became::Noted(
        "which GPU the engine takes is not told: it is simulated beside the trainer".to_owned(),
        Allowance::Less,
    )
}

fn of_engine(facts: &mut Facts, said: &Said<'_>, key: &'static str) -> Became {
    if !runs_inside(said) || is_null(said.value) {
        return Became::NoMemory("no engine runs in the trainer's process");
    }
    facts.set_key(key, said.value, said.place)
}

fn engine_ranks(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_u64() {
        Some(ranks) if ranks > 1 && runs_inside(said) => Became::Noted(
            "an engine over several GPUs is not simulated; its share of each is".to_owned(),
            Allowance::Fifth,
        ),
        _ => Became::NoMemory("one process, or none of the trainer's"),
    }
}

fn reward_model(facts: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) {
        return Became::NoMemory(OFF);
    }
    facts.set_text(keys::JUDGE_PHASE, "forward", said.place);
    facts.set_key(keys::JUDGE_MODEL, said.value, said.place)
}
