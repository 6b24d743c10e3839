//! Hugging Face's Trainer and TRL's trainers: arguments of `TrainingArguments`, `ModelConfig` and the trainers' configs
//! (transformers 5.17, training_args.py; trl 1.16, trainer/*_config.py), and accelerate's launcher.

use super::{Line, accelerate, argument, code};
use crate::job::JobSpec;
use crate::job::keys;

/// What both know: `TrainingArguments`.
pub(super) fn trainer(job: &JobSpec, key: &str, value: &str) -> Option<Vec<Line>> {
    match (key, value) {
        (keys::MICRO_BATCH_SIZE, rows) => argument(format!("--per_device_train_batch_size {rows}")),
        (keys::GRADIENT_ACCUMULATION_STEPS, passes) => argument(format!("--gradient_accumulation_steps {passes}")),
        (keys::GRADIENT_CHECKPOINTING, _) => argument("--gradient_checkpointing True"),
        (keys::OPTIMIZER, "adamw8bit") => argument("--optim adamw_bnb_8bit"),
        (keys::OPTIMIZER, _) => argument("--optim adamw_torch_fused"),
        (keys::PRECISION, "amp-bf16") => argument("--bf16 True"),
        (keys::LOSS | keys::USE_LIGER_KERNEL, _) => argument("--use_liger_kernel True"),
        (keys::DDP_GRADIENT_AS_BUCKET_VIEW, _) => {
            code("trainer.accelerator.ddp_handler.gradient_as_bucket_view = True  # before trainer.train()")
        }
        (keys::PRECISION, _) => {
            let mut lines = vec![Line::Argument("--bf16 False".to_owned())];
            lines.extend(super::pytorch::code(job, key, value));
            Some(lines)
        }
        (keys::PARALLEL | keys::WORLD_SIZE, _) => accelerate::launch(key, value),
        _ => None,
    }
}

/// TRL's own arguments, then those of the Trainer.
pub(super) fn trl(job: &JobSpec, key: &str, value: &str) -> Option<Vec<Line>> {
    match (key, value) {
        (keys::GRPO_STEPS_PER_GENERATION, steps) => argument(format!("--steps_per_generation {steps}")),
        (keys::GRPO_BETA, beta) => argument(format!("--beta {beta}")),
        (keys::VLLM_SLEEP_MODE, _) => argument("--vllm_enable_sleep_mode True"),
        (keys::VLLM_GPU_MEMORY_UTILIZATION, share) => argument(format!("--vllm_gpu_memory_utilization {share}")),
        (keys::DPO_PRECOMPUTE_REF_LOG_PROBS, _) => argument("--precompute_ref_log_probs True"),
        (keys::PRECISION, "amp-bf16") => argument("--dtype float32 --bf16 True"),
        (keys::PRECISION, _) => argument("--dtype bfloat16 --bf16 False"),
        (keys::ATTENTION, name) => argument(format!("--attn_implementation {name}")),
        (keys::LORA_R, r) => argument(format!("--use_peft --lora_r {r}")),
        (keys::LORA_TARGETS, targets) => argument(format!("--lora_target_modules {targets}")),
        (keys::SEQ_LEN, tokens) => argument(format!("--max_length {tokens}")),
        (keys::COMPLETION_LEN, tokens) => match job.task.dpo() {
            // `max_length` is that of prompt and answer together.
            Some(dpo) => argument(format!("--max_length {}", dpo.prompt_len.saturating_add(dpo.completion_len))),
            None => argument(format!("--max_completion_length {tokens}")),
        },
        _ => trainer(job, key, value),
    }
}
