//! OpenRLHF's command lines (0.6 to 0.9): its SFT and DPO trainers under DeepSpeed; PPO's actors are not simulated.

use tonnage_core::job::{Allowance, LeftOpen, keys};

use super::words::{CODE, DATA, EVAL, LAUNCH, LOGS, LOSS, OFFLOAD, PACKING, QUANTIZED, SAMPLING, SAVES, SCALAR, SEED, TOKENS};
use super::{deepspeed, peft};
use crate::facts::{Dtype, Facts};
use crate::rule::Rule::{Free, Notes, Reads, Refuses, Sets};
use crate::rule::{Became, OFF, Row, Said};
use crate::tree::is_on;

const ACTORS: &str = "OpenRLHF's actors of reinforcement learning are not simulated";
const OF_ACTORS: &str = "only OpenRLHF's actors of reinforcement learning read it, which are not simulated";

/// Its options; newer ones have dots.
pub const ROWS: &[Row] = &[
    ("pretrain", Sets(keys::MODEL)),
    ("model.model_name_or_path", Sets(keys::MODEL)),
    ("max_len", Sets(keys::SEQ_LEN)),
    ("data.max_len", Sets(keys::SEQ_LEN)),
    ("micro_train_batch_size", Sets(keys::MICRO_BATCH_SIZE)),
    ("train.micro_batch_size", Sets(keys::MICRO_BATCH_SIZE)),
    ("train_batch_size", Sets(keys::GLOBAL_BATCH_SIZE)),
    ("train.batch_size", Sets(keys::GLOBAL_BATCH_SIZE)),
    ("zero_stage", Reads(deepspeed::stage)),
    ("ds.zero_stage", Reads(deepspeed::stage)),
    ("bf16", Reads(super::trainer::bf16)),
    ("param_dtype", Reads(dtype)),
    ("ds.param_dtype", Reads(dtype)),
    ("gradient_checkpointing", Sets(keys::GRADIENT_CHECKPOINTING)),
    ("model.gradient_checkpointing_enable", Sets(keys::GRADIENT_CHECKPOINTING)),
    ("actor.gradient_checkpointing_enable", Free(OF_ACTORS)),
    ("gradient_checkpointing_use_reentrant", Notes("checkpointing with use_reentrant=True was not measured", Allowance::Fifth)),
    ("flash_attn", Reads(flash)),
    ("attn_implementation", Reads(super::trainer::attention)),
    ("ds.attn_implementation", Reads(super::trainer::attention)),
    ("adam_offload", Notes(OFFLOAD, Allowance::Less)),
    ("ds.adam_offload", Notes(OFFLOAD, Allowance::Less)),
    ("packing_samples", Notes(PACKING, Allowance::Fifth)),
    ("ds.packing_samples", Notes(PACKING, Allowance::Fifth)),
    ("max_norm", Sets(keys::CLIP_GRAD_NORM)),
    ("load_in_4bit", Refuses(QUANTIZED)),
    ("lora_rank", Reads(rank)),
    ("ds.lora.rank", Reads(rank)),
    ("lora_alpha", Free(SCALAR)),
    ("ds.lora.alpha", Free(SCALAR)),
    ("lora_dropout", Free("adapters are simulated without dropout")),
    ("target_modules", Reads(peft::targets)),
    ("use_liger_kernel", Sets(keys::USE_LIGER_KERNEL)),
    ("aux_loss_coef", Free(LOSS)),
    ("model.aux_loss_coef", Free(LOSS)),
    ("ring_attn_size", Reads(degree)),
    ("ds.ring_attn_size", Reads(degree)),
    ("ds_tensor_parallel_size", Reads(degree)),
    ("ds.tensor_parallel_size", Reads(degree)),
    ("ring_head_stride", Free("only ring attention reads it")),
    ("ds.ring_attn_head_stride", Free("only ring attention reads it")),
    ("overlap_comm", Free("when ranks speak: no size")),
    ("grad_accum_dtype", Notes("gradients of another dtype were not measured", Allowance::Fifth)),
    ("zpg", Reads(degree)),
    ("beta", Free(LOSS)),
    ("model.beta", Free(LOSS)),
    ("ipo", Free(LOSS)),
    ("model.ipo_enable", Free(LOSS)),
    ("label_smoothing", Free(LOSS)),
    ("model.label_smoothing", Free(LOSS)),
    ("nll_loss_coef", Notes("the added loss of the chosen answers is not simulated", Allowance::Fifth)),
    ("model.nll_loss_coef", Notes("the added loss of the chosen answers is not simulated", Allowance::Fifth)),
    ("ref_offload", Notes(OFFLOAD, Allowance::Less)),
    ("ref_pretrain", Notes("a reference of another model than the policy is not simulated", Allowance::Unknown)),
    ("prompt_data", Refuses(ACTORS)),
    ("data.prompt_dataset", Refuses(ACTORS)),
    ("actor.model_name_or_path", Refuses(ACTORS)),
    ("reward_pretrain", Refuses(ACTORS)),
    ("actor.*", Free(OF_ACTORS)),
    ("ref.*", Free(OF_ACTORS)),
    ("critic.*", Free(OF_ACTORS)),
    ("reward.*", Free(OF_ACTORS)),
    ("rollout.*", Free(OF_ACTORS)),
    ("vllm.*", Free(OF_ACTORS)),
    ("algo.*", Free(OF_ACTORS)),
    ("vllm_num_engines", Free(OF_ACTORS)),
    ("vllm_tensor_parallel_size", Free(OF_ACTORS)),
    ("vllm_gpu_memory_utilization", Free(OF_ACTORS)),
    ("colocate_all_models", Free(OF_ACTORS)),
    ("actor_num_nodes", Free(OF_ACTORS)),
    ("actor_num_gpus_per_node", Free(OF_ACTORS)),
    ("ref_num_nodes", Free(OF_ACTORS)),
    ("ref_num_gpus_per_node", Free(OF_ACTORS)),
    ("rollout_batch_size", Free(OF_ACTORS)),
    ("micro_rollout_batch_size", Free(OF_ACTORS)),
    ("n_samples_per_prompt", Free(OF_ACTORS)),
    ("prompt_max_len", Free(OF_ACTORS)),
    ("generate_max_len", Free(OF_ACTORS)),
    ("temperature", Free(SAMPLING)),
    ("ds.enable_sleep", Free(OF_ACTORS)),
    ("dataset", Free(DATA)),
    ("data.dataset", Free(DATA)),
    ("dataset_probs", Free(DATA)),
    ("eval_dataset", Free(DATA)),
    ("input_key", Free(DATA)),
    ("output_key", Free(DATA)),
    ("chosen_key", Free(DATA)),
    ("rejected_key", Free(DATA)),
    ("apply_chat_template", Free(TOKENS)),
    ("multiturn", Free(DATA)),
    ("input_template", Free(TOKENS)),
    ("tokenizer_chat_template", Free(TOKENS)),
    ("disable_fast_tokenizer", Free(TOKENS)),
    ("max_samples", Free(DATA)),
    ("train_split", Free(DATA)),
    ("eval_split", Free(DATA)),
    ("data.*", Free(DATA)),
    ("max_epochs", Free("how long it trains")),
    ("train.max_epochs", Free("how long it trains")),
    ("learning_rate", Free(SCALAR)),
    ("adam.lr", Free(SCALAR)),
    ("adam.*", Free(SCALAR)),
    ("adam_betas", Free(SCALAR)),
    ("l2", Free(SCALAR)),
    ("lr_scheduler", Free(SCALAR)),
    ("lr_warmup_ratio", Free(SCALAR)),
    ("save_path", Free(SAVES)),
    ("save_steps", Free(SAVES)),
    ("ckpt_path", Free(SAVES)),
    ("ckpt.*", Free(SAVES)),
    ("load_checkpoint", Free(SAVES)),
    ("save_hf_ckpt", Free(SAVES)),
    ("disable_ds_ckpt", Free(SAVES)),
    ("max_ckpt_num", Free(SAVES)),
    ("max_ckpt_mem", Free(SAVES)),
    ("use_ds_universal_ckpt", Free(SAVES)),
    ("logging_steps", Free(LOGS)),
    ("logger.*", Free(LOGS)),
    ("use_wandb", Free(LOGS)),
    ("wandb_org", Free(LOGS)),
    ("wandb_group", Free(LOGS)),
    ("wandb_project", Free(LOGS)),
    ("wandb_run_name", Free(LOGS)),
    ("use_tensorboard", Free(LOGS)),
    ("eval_steps", Free(EVAL)),
    ("eval.*", Free(EVAL)),
    ("seed", Free(SEED)),
    ("full_determinism", Notes("deterministic kernels have other workspaces", Allowance::Fifth)),
    ("local_rank", Free(LAUNCH)),
    ("trust_remote_code", Free(CODE)),
    ("module", Free(LAUNCH)),
];

fn dtype(facts: &mut Facts, said: &Said<'_>) -> Became {
    match Dtype::of(&said.word()) {
        Some(dtype) => facts.take_autocast(dtype, dtype != Dtype::Fp32, said.place),
        None => Became::Refused("a dtype that is not simulated".to_owned()),
    }
}

fn flash(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    super::trainer::set_attention(facts, "flash_attention_2", said.place)
}

fn rank(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_u64() {
        Some(0) | None => Became::NoMemory(OFF),
        Some(_) => {
            facts.imply(keys::LORA_TARGETS, "all-linear", "OpenRLHF's target_modules");
            facts.set(keys::LORA_R, said.value, said.place)
        }
    }
}

fn degree(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_u64() {
        Some(0 | 1) | None => Became::NoMemory(OFF),
        _ => Became::Noted("several parallel dimensions at once are not simulated".to_owned(), Allowance::Unknown),
    }
}

/// OpenRLHF trains under DeepSpeed (cli/train_sft.py).
pub fn finish(facts: &mut Facts) {
    facts.imply(keys::TASK, "causal_lm", "OpenRLHF's SFT trainer");
    facts.imply(keys::FRAMEWORK, "deepspeed", "OpenRLHF trains under DeepSpeed");
    if facts.autocast.is_none() {
        facts.autocast = Some((Some(Dtype::Bf16), None));
    }
    if !facts.has_deepspeed {
        facts.imply(keys::PARALLEL, "deepspeed", "OpenRLHF trains under DeepSpeed");
        facts.imply(keys::DEEPSPEED_STAGE, 2, "OpenRLHF's zero_stage");
        facts.has_deepspeed = true;
    }
    facts.imply(keys::CLIP_GRAD_NORM, 1.0, "OpenRLHF's max_norm");
    facts.imply(keys::USE_CACHE, false, "OpenRLHF calls the model without a KV cache");
    facts.left_open.push(LeftOpen {
        text: "OpenRLHF's loop is simulated as a plain one under DeepSpeed; it was not measured, the range allows a fifth of the peak"
            .to_owned(),
        allowance: Allowance::Fifth,
    });
}
