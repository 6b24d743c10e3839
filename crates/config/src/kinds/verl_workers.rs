//! verl's jobs of reinforcement learning (main_ppo): the actor's update under FSDP is estimated; what lies beside it, an engine,
//! a reference, a critic, is named and not bounded.

use serde_json::Value;
use tonnage_core::job::{Allowance, LeftOpen, keys};

use super::words::{CODE, COMPILE, LAUNCH, LOGS, LOSS, NAME, SAMPLING, SAVES, SCALAR, SEED, TOKENS};
use crate::facts::{Dtype, Facts, Weights};
use crate::rule::Rule::{Free, Notes, Reads, Refuses, Sets};
use crate::rule::{Became, OFF, Row, Said};
use crate::tree::{Entry, find_entry, is_on, plain_text};

const MEGATRON: &str = "verl's Megatron workers are not simulated";
const OF_ENGINE: &str =
    "only the engine that generates reads it: what that holds is not in the figures, as a caveat says";
const OF_REFERENCE: &str = "only the reference model reads it: what that holds is not in the figures, as a caveat says";
const OF_CRITIC: &str = "only the critic reads it: what that holds is not in the figures, as a caveat says";
const OF_REWARD: &str = "only a reward model reads it: where one is on, a caveat says that it is not in the figures";
const MOVED: &str =
    "what is moved to the host comes back for the update, which is what is estimated (fsdp_workers.py, update_actor)";
const ENTROPY: &str = "entropies of all tokens keep more of the logits, which is not simulated";
const FUSED: &str = "fused kernels never hold all logits: estimated is the head that does, which takes no less";

/// Their keys, written with dots.
pub const ROWS: &[Row] = &[
    ("actor_rollout_ref.model.path", Sets(keys::MODEL)),
    ("actor_rollout_ref.model.enable_gradient_checkpointing", Sets(keys::GRADIENT_CHECKPOINTING)),
    ("actor_rollout_ref.model.enable_activation_offload", Notes(super::words::OFFLOAD, Allowance::Less)),
    ("actor_rollout_ref.model.use_remove_padding", Free("rows are taken at their full length, laid end to end or not")),
    ("actor_rollout_ref.model.use_fused_kernels", Notes(FUSED, Allowance::None)),
    ("actor_rollout_ref.model.fused_kernel_options.*", Free(FUSED)),
    ("actor_rollout_ref.model.use_liger", Sets(keys::USE_LIGER_KERNEL)),
    ("actor_rollout_ref.model.lora_rank", Reads(super::verl::lora_rank)),
    ("actor_rollout_ref.model.lora_alpha", Reads(|facts, said| of_adapter(facts, said, keys::LORA_ALPHA))),
    ("actor_rollout_ref.model.target_modules", Reads(|facts, said| of_adapter(facts, said, keys::LORA_TARGETS))),
    (
        "actor_rollout_ref.model.exclude_modules",
        Notes("modules that are left out still get adapters here", Allowance::Less),
    ),
    ("actor_rollout_ref.model.lora_adapter_path", Refuses("which adapters a folder has is not told by its name")),
    ("actor_rollout_ref.model.lora.*", Refuses(MEGATRON)),
    ("actor_rollout_ref.model.mtp.*", Refuses("layers that predict several tokens are not simulated")),
    ("actor_rollout_ref.model.tiled_mlp.*", Notes("a tiled MLP takes less, which is not simulated", Allowance::Less)),
    ("actor_rollout_ref.model.override_config.attn_implementation", Free("the kernels are simulated as PyTorch's own")),
    ("actor_rollout_ref.model.override_config.model_config.max_position_embeddings", Free("positions cost no memory")),
    ("actor_rollout_ref.model.override_config.max_position_embeddings", Free("positions cost no memory")),
    ("actor_rollout_ref.model.torch_dtype", Notes("verl's workers leave it unread", Allowance::None)),
    ("actor_rollout_ref.model.use_shm", Free("files are copied to the host's memory before they are read")),
    ("actor_rollout_ref.model.trust_remote_code", Free(CODE)),
    ("actor_rollout_ref.model.external_lib", Free(CODE)),
    ("actor_rollout_ref.model.tokenizer_path", Free(TOKENS)),
    ("actor_rollout_ref.model.custom_chat_template", Free(TOKENS)),
    ("actor_rollout_ref.actor.strategy", Reads(strategy)),
    ("actor_rollout_ref.actor.fsdp_config.strategy", Reads(strategy)),
    ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", Reads(|_, said| of_batch(said))),
    ("actor_rollout_ref.actor.ppo_micro_batch_size", Reads(|_, said| of_batch(said))),
    ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu", Reads(|_, said| of_tokens(said))),
    ("actor_rollout_ref.actor.use_dynamic_bsz", Reads(|_, said| of_tokens(said))),
    ("actor_rollout_ref.actor.ppo_mini_batch_size", Reads(|_, _| Became::Used(keys::GRADIENT_ACCUMULATION_STEPS))),
    ("actor_rollout_ref.actor.ppo_epochs", Free("as many updates of one size")),
    ("actor_rollout_ref.actor.ulysses_sequence_parallel_size", Reads(sequence_parallel)),
    ("actor_rollout_ref.actor.grad_clip", Sets(keys::CLIP_GRAD_NORM)),
    ("actor_rollout_ref.actor.entropy_coeff", Reads(|_, said| entropies(said))),
    ("actor_rollout_ref.actor.calculate_entropy", Notes(ENTROPY, Allowance::None)),
    ("actor_rollout_ref.actor.calculate_sum_pi_squared", Notes(ENTROPY, Allowance::None)),
    ("actor_rollout_ref.actor.entropy_checkpointing", Free("only entropies of tokens read it")),
    ("actor_rollout_ref.actor.entropy_from_logits_with_chunking", Free("only entropies of tokens read it")),
    (
        "actor_rollout_ref.actor.use_torch_compile",
        Reads(|_, _| Became::NoMemory("only the entropy of tokens is compiled")),
    ),
    (
        "actor_rollout_ref.actor.use_kl_loss",
        Notes("a reference model lies beside the actor: a caveat says so", Allowance::None),
    ),
    ("actor_rollout_ref.actor.freeze_vision_tower", Free("the language model is estimated: of towers a caveat tells")),
    (
        "actor_rollout_ref.actor.use_prefix_grouper",
        Notes("shared prefixes take less, which is not simulated", Allowance::Less),
    ),
    (
        "actor_rollout_ref.actor.fsdp_config.model_dtype",
        Reads(|facts, said| facts.take_weights(said.value, said.place)),
    ),
    ("actor_rollout_ref.actor.fsdp_config.param_offload", Free(MOVED)),
    ("actor_rollout_ref.actor.fsdp_config.optimizer_offload", Free(MOVED)),
    ("actor_rollout_ref.actor.fsdp_config.offload_policy", Notes(super::words::OFFLOAD, Allowance::Less)),
    ("actor_rollout_ref.actor.fsdp_config.fsdp_size", Reads(shard_ranks)),
    (
        "actor_rollout_ref.actor.fsdp_config.forward_prefetch",
        Notes("weights of the next layer are gathered before they are needed: of one more layer", Allowance::None),
    ),
    ("actor_rollout_ref.actor.fsdp_config.reshard_after_forward", Sets(keys::FSDP2_RESHARD_AFTER_FORWARD)),
    ("actor_rollout_ref.actor.fsdp_config.use_orig_params", Free("how FSDP names weights")),
    ("actor_rollout_ref.actor.fsdp_config.wrap_policy.*", Free("layers are wrapped one by one")),
    ("actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype", Sets(keys::FSDP2_PARAM_DTYPE)),
    ("actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype", Sets(keys::FSDP2_REDUCE_DTYPE)),
    (
        "actor_rollout_ref.actor.fsdp_config.mixed_precision.buffer_dtype",
        Free("buffers are rotary frequencies, which stay fp32"),
    ),
    ("actor_rollout_ref.actor.fsdp_config.use_torch_compile", Notes(COMPILE, Allowance::None)),
    ("actor_rollout_ref.actor.fsdp_config.seed", Free(SEED)),
    ("actor_rollout_ref.actor.megatron.*", Refuses(MEGATRON)),
    ("actor_rollout_ref.actor.optim.optimizer", Reads(super::optimizer::read)),
    ("actor_rollout_ref.actor.optim.weight_decay", Reads(super::optimizer::decay)),
    ("actor_rollout_ref.actor.optim.clip_grad", Free("actor.grad_clip is what the actor reads")),
    ("actor_rollout_ref.actor.optim.override_optimizer_config.*", Refuses(MEGATRON)),
    ("actor_rollout_ref.actor.optim.*", Free(SCALAR)),
    ("actor_rollout_ref.actor.profiler.*", Free(LOGS)),
    ("actor_rollout_ref.actor.checkpoint.*", Free(SAVES)),
    ("actor_rollout_ref.actor.policy_loss.*", Free(LOSS)),
    (
        "actor_rollout_ref.actor.router_replay.*",
        Notes("which experts a token takes is kept, which is not simulated", Allowance::None),
    ),
    ("actor_rollout_ref.actor.kl_loss_coef", Free(LOSS)),
    ("actor_rollout_ref.actor.kl_loss_type", Free(LOSS)),
    ("actor_rollout_ref.actor.clip_ratio", Free(LOSS)),
    ("actor_rollout_ref.actor.clip_ratio_low", Free(LOSS)),
    ("actor_rollout_ref.actor.clip_ratio_high", Free(LOSS)),
    ("actor_rollout_ref.actor.clip_ratio_c", Free(LOSS)),
    ("actor_rollout_ref.actor.tau_pos", Free(LOSS)),
    ("actor_rollout_ref.actor.tau_neg", Free(LOSS)),
    ("actor_rollout_ref.actor.loss_agg_mode", Free(LOSS)),
    ("actor_rollout_ref.actor.shuffle", Free(SEED)),
    ("actor_rollout_ref.actor.data_loader_seed", Free(SEED)),
    ("actor_rollout_ref.ref.megatron.*", Refuses(MEGATRON)),
    ("actor_rollout_ref.ref.*", Free(OF_REFERENCE)),
    ("actor_rollout_ref.rollout.n", Reads(|_, _| Became::Used(keys::GRADIENT_ACCUMULATION_STEPS))),
    ("actor_rollout_ref.rollout.gpu_memory_utilization", Reads(engine_share)),
    ("actor_rollout_ref.rollout.temperature", Free(SAMPLING)),
    ("actor_rollout_ref.rollout.top_k", Free(SAMPLING)),
    ("actor_rollout_ref.rollout.top_p", Free(SAMPLING)),
    ("actor_rollout_ref.rollout.val_kwargs.*", Free(SAMPLING)),
    ("actor_rollout_ref.rollout.*", Free(OF_ENGINE)),
    ("actor_rollout_ref.nccl_timeout", Free(LAUNCH)),
    ("actor_rollout_ref.hybrid_engine", Free("actor and engine share their GPUs, as by default")),
    ("critic.megatron.*", Refuses(MEGATRON)),
    ("critic.*", Free(OF_CRITIC)),
    (
        "reward_model.enable",
        Notes("a reward model lies on the GPUs of the actor, or on others: a caveat says so", Allowance::None),
    ),
    ("reward_model.*", Free(OF_REWARD)),
    ("reward.*", Free(OF_REWARD)),
    ("reward_manager.*", Free(OF_REWARD)),
    ("rollout.*", Free(OF_ENGINE)),
    ("algorithm.adv_estimator", Reads(advantages)),
    ("algorithm.*", Free(LOSS)),
    ("data.max_prompt_length", Reads(|_, _| Became::Used(keys::SEQ_LEN))),
    ("data.max_response_length", Reads(|_, _| Became::Used(keys::SEQ_LEN))),
    ("trainer.device", Reads(device)),
    ("trainer.use_legacy_worker_impl", Notes("the older workers are what was read", Allowance::None)),
    ("config-name", Reads(config_name)),
];

fn strategy(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "fsdp" | "fsdp2" => Became::Used(keys::PARALLEL),
        "megatron" => Became::Refused(MEGATRON.to_owned()),
        other => Became::Refused(format!("verl's workers of `{}` are not simulated", crate::text::brief_text(other))),
    }
}

fn config_name(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.word() {
        name if name.contains("megatron") => Became::Refused(MEGATRON.to_owned()),
        name if name.trim_end_matches(".yaml") == "ppo_trainer" => Became::NoMemory("verl's own defaults"),
        _ => Became::Noted(
            "the defaults of this config are not read: what it says beside the command is not in the figures"
                .to_owned(),
            Allowance::Unknown,
        ),
    }
}

fn device(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "cuda" => Became::NoMemory(NAME),
        other => Became::Refused(format!("`{}` is no GPU of CUDA's", crate::text::brief_text(other))),
    }
}

fn of_batch(said: &Said<'_>) -> Became {
    match said.other_is_on("actor_rollout_ref.actor.use_dynamic_bsz") {
        true => Became::NoMemory("batches are filled by tokens: use_dynamic_bsz"),
        false => Became::Used(keys::MICRO_BATCH_SIZE),
    }
}

fn of_tokens(said: &Said<'_>) -> Became {
    match said.other_is_on("actor_rollout_ref.actor.use_dynamic_bsz") {
        true => Became::Used(keys::SEQ_LEN),
        false => Became::NoMemory("use_dynamic_bsz is off: batches are filled by rows"),
    }
}

fn sequence_parallel(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_u64() {
        Some(2..) => Became::Noted(
            "a rank is given its part of each row; what its attention gathers from the others is not simulated"
                .to_owned(),
            Allowance::Unknown,
        ),
        _ => Became::NoMemory(OFF),
    }
}

fn shard_ranks(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_i64() {
        Some(-1) | None => Became::NoMemory("all ranks share the weights"),
        _ => Became::Noted(
            "weights shared by fewer ranks than there are take more on each, which is not simulated".to_owned(),
            Allowance::Unknown,
        ),
    }
}

fn entropies(said: &Said<'_>) -> Became {
    match said.value.as_f64() {
        Some(weight) if weight != 0.0 => Became::Noted(ENTROPY.to_owned(), Allowance::None),
        _ => Became::NoMemory(OFF),
    }
}

fn engine_share(_: &mut Facts, said: &Said<'_>) -> Became {
    let Some(share) = said.value.as_f64() else { return Became::NoMemory(OF_ENGINE) };
    let text = format!(
        "while the engine generates, {:.0} % of each GPU are its own, beside what the actor holds: not in the figures",
        100.0 * share
    );
    Became::Noted(text, Allowance::Unknown)
}

fn advantages(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "gae" => Became::Noted("a critic is trained beside the actor: a caveat says so".to_owned(), Allowance::Unknown),
        _ => Became::NoMemory(LOSS),
    }
}

fn of_adapter(facts: &mut Facts, said: &Said<'_>, key: &'static str) -> Became {
    super::verl::of_adapter(facts, said, ("actor_rollout_ref.model.lora_rank", key))
}

/// Whether the keys are those of the workers, not of verl's SFT trainer.
pub fn has_workers(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| entry.key.starts_with("actor_rollout_ref."))
}

/// verl's defaults (trainer/config/_generated_ppo_trainer.yaml).
const PROMPT: u64 = 512;
const RESPONSE: u64 = 512;
const TOKENS_PER_GPU: u64 = 16_384;
const MINI_BATCH: u64 = 256;
const GPUS: u64 = 8;

/// The actor's update as a job: rows of full length, or a batch of as many tokens as it may have.
pub fn finish_workers(facts: &mut Facts, entries: &[Entry]) {
    let entry = |key: &str| find_entry(entries, key);
    let size = |key: &str, default: u64| entry(key).and_then(|entry| entry.node.value().as_u64()).unwrap_or(default);
    let actor = |key: &str| format!("actor_rollout_ref.actor.{key}");
    facts.imply_key(keys::WORLD_SIZE, GPUS, "verl's trainer.n_gpus_per_node");
    let ranks = facts.size_of(keys::WORLD_SIZE).unwrap_or(GPUS).max(1);
    let parts = size(&actor("ulysses_sequence_parallel_size"), 1).max(1);
    let row = size("data.max_prompt_length", PROMPT).saturating_add(size("data.max_response_length", RESPONSE));
    let of_rank = |all: u64| (all / (ranks / parts).max(1)).max(1);
    let rows_of_update = of_rank(
        size(&actor("ppo_mini_batch_size"), MINI_BATCH).saturating_mul(size("actor_rollout_ref.rollout.n", 1).max(1)),
    );
    let is_dynamic = entry(&actor("use_dynamic_bsz")).is_some_and(|entry| is_on(&entry.node.value()));
    let (micro, tokens) = if is_dynamic {
        let tokens = size(&actor("ppo_max_token_len_per_gpu"), TOKENS_PER_GPU).max(row.div_ceil(parts));
        (1, tokens)
    } else {
        let all = entry(&actor("ppo_micro_batch_size")).and_then(|entry| entry.node.value().as_u64()).map(of_rank);
        (all.unwrap_or_else(|| size(&actor("ppo_micro_batch_size_per_gpu"), 1)).max(1), row.div_ceil(parts))
    };
    let place = |key: &str| entry(key).and_then(|entry| entry.place.clone());
    let length = place(&actor("ppo_max_token_len_per_gpu")).filter(|_| is_dynamic);
    let length = length.or_else(|| place("data.max_response_length"));
    facts.set_text(keys::SEQ_LEN, tokens.max(1), length.as_ref());
    facts.set_text(
        keys::MICRO_BATCH_SIZE,
        micro,
        place(&actor("ppo_micro_batch_size_per_gpu")).filter(|_| !is_dynamic).as_ref(),
    );
    let passes = match is_dynamic {
        true => rows_of_update.saturating_mul(row.div_ceil(parts)).div_ceil(tokens.max(1)),
        false => rows_of_update / micro,
    };
    facts.set_text(keys::GRADIENT_ACCUMULATION_STEPS, passes.max(1), place(&actor("ppo_mini_batch_size")).as_ref());
    facts.imply_key(keys::TASK, "causal_lm", "verl's actor");
    super::verl::imply_loop(facts);
    if facts.weights.is_none() {
        facts.weights = Some((Weights::As(Dtype::Fp32), None));
    }
    facts.left_open.push(what_is_left_open(entries));
}

/// What lies beside the actor's update, and what of the update itself is not known.
fn what_is_left_open(entries: &[Entry]) -> LeftOpen {
    let value = |key: &str| find_entry(entries, key).map(|entry| entry.node.value());
    let is = |key: &str| value(key).is_some_and(|value| is_on(&value));
    let engine = value("actor_rollout_ref.rollout.name").map_or_else(
        || "the engine".to_owned(),
        |name| match name {
            Value::Null => "the engine".to_owned(),
            name => crate::text::brief_text(&plain_text(&name)),
        },
    );
    let mut beside = vec![engine];
    if is("actor_rollout_ref.actor.use_kl_loss") || is("algorithm.use_kl_in_reward") {
        beside.push("a reference model".to_owned());
    }
    // Where nobody says how advantages are made, a critic is trained.
    if value("algorithm.adv_estimator").is_none_or(|value| plain_text(&value) == "gae") {
        beside.push("a critic with its gradients and states".to_owned());
    }
    if is("reward_model.enable") {
        beside.push("a reward model".to_owned());
    }
    let text = format!(
        "of verl's workers the actor's update is simulated, as FSDP2's training on the next token with rows of full length; its loss \
         keeps other copies of the logits, and beside it {} may lie on the GPU: the range goes from weights and states alone and has \
         no upper bound",
        beside.join(", ")
    );
    LeftOpen { text, allowance: Allowance::AllButStates }
}
