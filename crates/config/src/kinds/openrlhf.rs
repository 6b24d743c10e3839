//! OpenRLHF's command lines (0.6 to 0.9): its SFT and DPO trainers under DeepSpeed; PPO's actors are not simulated.

use tonnage_core::job::{Allowance, LeftOpen, keys};

use super::words::{
    CODE, DATA, EVAL, LAUNCH, LOGS, LOSS, OFFLOAD, PACKING, QUANTIZED, SAMPLING, SAVES, SCALAR, SEED, TOKENS,
};
use super::{deepspeed, peft};
use crate::facts::{Dtype, Facts};
use crate::rule::Rule::{Notes, Reads, Refuses, Sets};
use crate::rule::{Became, Free, OFF, Row, Rule, Said, Table};
use crate::tree::is_on;

const ACTORS: &str = "OpenRLHF's actors of reinforcement learning are not simulated";
const OF_ACTORS: &str = "only OpenRLHF's actors of reinforcement learning read it, which are not simulated";

/// Its options; newer ones have dots.
pub const ROWS: Table = Table { rows: ROWS_ROWS, free: ROWS_FREE };

/// Of these the reason is one of a few.
const ROWS_FREE: &[Free] = &[
    (SCALAR, "lora_alpha learning_rate adam_betas l2 lr_scheduler lr_warmup_ratio"),
    (LOSS, "aux_loss_coef beta ipo label_smoothing"),
    (SAMPLING, "temperature"),
    (
        DATA,
        "dataset dataset_probs eval_dataset input_key output_key chosen_key rejected_key multiturn max_samples \
        train_split eval_split",
    ),
    (TOKENS, "apply_chat_template input_template tokenizer_chat_template disable_fast_tokenizer"),
    (
        SAVES,
        "save_path save_steps ckpt_path load_checkpoint save_hf_ckpt disable_ds_ckpt max_ckpt_num max_ckpt_mem \
        use_ds_universal_ckpt",
    ),
    (LOGS, "logging_steps use_wandb wandb_org wandb_group wandb_project wandb_run_name use_tensorboard"),
    (EVAL, "eval_steps"),
    (SEED, "seed"),
    (LAUNCH, "local_rank module"),
    (CODE, "trust_remote_code"),
];

const ROWS_ROWS: &[Row] = &[
    ("pretrain", Sets(keys::MODEL)),
    ("model.model_name_or_path", Sets(keys::MODEL)),
    ("max_len", Sets(keys::SEQ_LEN)),
    ("data.max_len", Sets(keys::SEQ_LEN)),
    ("micro_train_batch_size", Sets(keys::MICRO_BATCH_SIZE)),
    ("train.micro_batch_size", Sets(keys::MICRO_BATCH_SIZE)),
    ("train_batch_size", Sets(keys::GLOBAL_BATCH_SIZE)),
    ("train.batch_size", Sets(keys::GLOBAL_BATCH_SIZE)),
    ("zero_stage", Reads(deepspeed::zero_stage)),
    ("ds.zero_stage", Reads(deepspeed::zero_stage)),
    ("bf16", Reads(super::trainer::bf16)),
    ("param_dtype", Reads(dtype)),
    ("ds.param_dtype", Reads(dtype)),
    ("gradient_checkpointing", Sets(keys::GRADIENT_CHECKPOINTING)),
    ("model.gradient_checkpointing_enable", Sets(keys::GRADIENT_CHECKPOINTING)),
    ("actor.gradient_checkpointing_enable", Rule::Free(OF_ACTORS)),
    (
        "gradient_checkpointing_use_reentrant",
        Notes("checkpointing with use_reentrant=True was not measured", Allowance::Fifth),
    ),
    ("flash_attn", Reads(flash_attention)),
    ("attn_implementation", Reads(super::trainer::attention)),
    ("ds.attn_implementation", Reads(super::trainer::attention)),
    ("adam_offload", Notes(OFFLOAD, Allowance::Less)),
    ("ds.adam_offload", Notes(OFFLOAD, Allowance::Less)),
    ("packing_samples", Notes(PACKING, Allowance::Fifth)),
    ("ds.packing_samples", Notes(PACKING, Allowance::Fifth)),
    ("max_norm", Sets(keys::CLIP_GRAD_NORM)),
    ("load_in_4bit", Refuses(QUANTIZED)),
    ("lora_rank", Reads(lora_rank)),
    ("ds.lora.rank", Reads(lora_rank)),
    ("ds.lora.alpha", Rule::Free(SCALAR)),
    ("lora_dropout", Rule::Free("adapters are simulated without dropout")),
    ("target_modules", Reads(peft::targets)),
    ("use_liger_kernel", Sets(keys::USE_LIGER_KERNEL)),
    ("model.aux_loss_coef", Rule::Free(LOSS)),
    ("ring_attn_size", Reads(parallel_degree)),
    ("ds.ring_attn_size", Reads(parallel_degree)),
    ("ds_tensor_parallel_size", Reads(parallel_degree)),
    ("ds.tensor_parallel_size", Reads(parallel_degree)),
    ("ring_head_stride", Rule::Free("only ring attention reads it")),
    ("ds.ring_attn_head_stride", Rule::Free("only ring attention reads it")),
    ("overlap_comm", Rule::Free("when ranks speak: no size")),
    ("grad_accum_dtype", Notes("gradients of another dtype were not measured", Allowance::Fifth)),
    ("zpg", Reads(parallel_degree)),
    ("model.beta", Rule::Free(LOSS)),
    ("model.ipo_enable", Rule::Free(LOSS)),
    ("model.label_smoothing", Rule::Free(LOSS)),
    ("nll_loss_coef", Notes("the added loss of the chosen answers is not simulated", Allowance::Fifth)),
    ("model.nll_loss_coef", Notes("the added loss of the chosen answers is not simulated", Allowance::Fifth)),
    ("ref_offload", Notes(OFFLOAD, Allowance::Less)),
    ("ref_pretrain", Notes("a reference of another model than the policy is not simulated", Allowance::Unknown)),
    ("prompt_data", Refuses(ACTORS)),
    ("data.prompt_dataset", Refuses(ACTORS)),
    ("actor.model_name_or_path", Refuses(ACTORS)),
    ("reward_pretrain", Refuses(ACTORS)),
    ("actor.*", Rule::Free(OF_ACTORS)),
    ("ref.*", Rule::Free(OF_ACTORS)),
    ("critic.*", Rule::Free(OF_ACTORS)),
    ("reward.*", Rule::Free(OF_ACTORS)),
    ("rollout.*", Rule::Free(OF_ACTORS)),
    ("vllm.*", Rule::Free(OF_ACTORS)),
    ("algo.*", Rule::Free(OF_ACTORS)),
    ("vllm_num_engines", Rule::Free(OF_ACTORS)),
    ("vllm_tensor_parallel_size", Rule::Free(OF_ACTORS)),
    ("vllm_gpu_memory_utilization", Rule::Free(OF_ACTORS)),
    ("colocate_all_models", Rule::Free(OF_ACTORS)),
    ("actor_num_nodes", Rule::Free(OF_ACTORS)),
    ("actor_num_gpus_per_node", Rule::Free(OF_ACTORS)),
    ("ref_num_nodes", Rule::Free(OF_ACTORS)),
    ("ref_num_gpus_per_node", Rule::Free(OF_ACTORS)),
    ("rollout_batch_size", Rule::Free(OF_ACTORS)),
    ("micro_rollout_batch_size", Rule::Free(OF_ACTORS)),
    ("n_samples_per_prompt", Rule::Free(OF_ACTORS)),
    ("prompt_max_len", Rule::Free(OF_ACTORS)),
    ("generate_max_len", Rule::Free(OF_ACTORS)),
    ("ds.enable_sleep", Rule::Free(OF_ACTORS)),
    ("data.dataset", Rule::Free(DATA)),
    ("data.*", Rule::Free(DATA)),
    ("max_epochs", Rule::Free("how long it trains")),
    ("train.max_epochs", Rule::Free("how long it trains")),
    ("adam.lr", Rule::Free(SCALAR)),
    ("adam.*", Rule::Free(SCALAR)),
    ("ckpt.*", Rule::Free(SAVES)),
    ("logger.*", Rule::Free(LOGS)),
    ("eval.*", Rule::Free(EVAL)),
    ("full_determinism", Notes("deterministic kernels have other workspaces", Allowance::Fifth)),
];

fn dtype(facts: &mut Facts, said: &Said<'_>) -> Became {
    match Dtype::of_word(&said.word()) {
        Some(dtype) => facts.take_autocast(dtype, dtype != Dtype::Fp32, said.place),
        None => Became::Refused("a dtype that is not simulated".to_owned()),
    }
}

fn flash_attention(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    super::trainer::set_attention(facts, "flash_attention_2", said.place)
}

fn lora_rank(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_u64() {
        Some(0) | None => Became::NoMemory(OFF),
        Some(_) => {
            facts.imply_key(keys::LORA_TARGETS, "all-linear", "OpenRLHF's target_modules");
            facts.set_key(keys::LORA_R, said.value, said.place)
        }
    }
}

fn parallel_degree(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_u64() {
        Some(0 | 1) | None => Became::NoMemory(OFF),
        _ => Became::Noted("several parallel dimensions at once are not simulated".to_owned(), Allowance::Unknown),
    }
}

/// OpenRLHF trains under DeepSpeed (cli/train_sft.py).
pub fn finish_openrlhf(facts: &mut Facts) {
    facts.imply_key(keys::TASK, "causal_lm", "OpenRLHF's SFT trainer");
    facts.imply_key(keys::FRAMEWORK, "deepspeed", "OpenRLHF trains under DeepSpeed");
    if facts.autocast.is_none() {
        facts.autocast = Some((Some(Dtype::Bf16), None));
    }
    if !facts.has_deepspeed {
        facts.imply_key(keys::PARALLEL, "deepspeed", "OpenRLHF trains under DeepSpeed");
        facts.imply_key(keys::DEEPSPEED_STAGE, 2, "OpenRLHF's zero_stage");
        facts.has_deepspeed = true;
    }
    facts.imply_key(keys::CLIP_GRAD_NORM, 1.0, "OpenRLHF's max_norm");
    facts.imply_key(keys::USE_CACHE, false, "OpenRLHF calls the model without a KV cache");
    facts.left_open.push(LeftOpen {
        text: "OpenRLHF's loop is simulated as a plain one under DeepSpeed; it was not measured, the range allows a fifth of the peak"
            .to_owned(),
        allowance: Allowance::Fifth,
    });
}
