//! Hugging Face's Trainer and TRL's trainers: arguments of `TrainingArguments`, `ModelConfig` and the trainers' configs
//! (transformers 5.17, training_args.py; trl 1.16, trainer/*_config.py), and accelerate's launcher.

use super::{Line, accelerate, as_argument, as_code};
use crate::job::keys;
use crate::job::{JobSpec, Task};

/// What both know: `TrainingArguments`.
pub(super) fn trainer_lines(job: &JobSpec, key: &str, value: &str) -> Option<Vec<Line>> {
    match (key, value) {
        (keys::MICRO_BATCH_SIZE, rows) => as_argument(format!("--per_device_train_batch_size {rows}")),
        (keys::GRADIENT_ACCUMULATION_STEPS, passes) => as_argument(format!("--gradient_accumulation_steps {passes}")),
        (keys::GRADIENT_CHECKPOINTING, _) => as_argument("--gradient_checkpointing True"),
        (keys::OPTIMIZER, "adamw8bit") => as_argument("--optim adamw_bnb_8bit"),
        (keys::OPTIMIZER, _) => as_argument("--optim adamw_torch_fused"),
        (keys::PRECISION, "amp-bf16") => as_argument("--bf16 True"),
        (keys::LOSS | keys::USE_LIGER_KERNEL, _) => as_argument("--use_liger_kernel True"),
        (keys::EMBEDDING_MINI_BATCH_SIZE, rows) => {
            as_code(format!("loss = CachedMultipleNegativesRankingLoss(model, mini_batch_size={rows})"))
        }
        (keys::DDP_GRADIENT_AS_BUCKET_VIEW, _) => {
            as_code("trainer.accelerator.ddp_handler.gradient_as_bucket_view = True  # before trainer.train()")
        }
        (keys::PRECISION, _) => {
            let mut lines = vec![Line::Argument("--bf16 False".to_owned())];
            lines.extend(super::pytorch::code_lines(job, key, value));
            Some(lines)
        }
        (
            keys::PARALLEL
            | keys::WORLD_SIZE
            | keys::FSDP1_CPU_OFFLOAD
            | keys::FSDP2_CPU_OFFLOAD
            | keys::DEEPSPEED_OFFLOAD_OPTIMIZER,
            _,
        ) => accelerate::launch_lines(key, value),
        _ => None,
    }
}

/// TRL's own arguments, then those of the Trainer.
pub(super) fn trl_lines(job: &JobSpec, key: &str, value: &str) -> Option<Vec<Line>> {
    match (key, value) {
        (keys::GRPO_STEPS_PER_GENERATION, steps) => as_argument(format!("--steps_per_generation {steps}")),
        (keys::GRPO_BETA, beta) => as_argument(format!("--beta {beta}")),
        (keys::VLLM_SLEEP_MODE, _) => as_argument("--vllm_enable_sleep_mode True"),
        (keys::VLLM_GPU_MEMORY_UTILIZATION, share) => as_argument(format!("--vllm_gpu_memory_utilization {share}")),
        (keys::DPO_PRECOMPUTE_REF_LOG_PROBS | keys::KTO_PRECOMPUTE_REF_LOG_PROBS, _) => {
            as_argument("--precompute_ref_log_probs True")
        }
        (keys::PRECISION, "amp-bf16") => as_argument("--dtype float32 --bf16 True"),
        (keys::PRECISION, _) => as_argument("--dtype bfloat16 --bf16 False"),
        (keys::ATTENTION, name) => as_argument(format!("--attn_implementation {name}")),
        (keys::LORA_R, r) => as_argument(format!("--use_peft --lora_r {r}")),
        (keys::LORA_TARGETS, targets) => as_argument(format!("--lora_target_modules {targets}")),
        (keys::ACTIVATION_OFFLOADING, "streams") => as_argument("--activation_offloading True"),
        (keys::SEQ_LEN, tokens) => as_argument(format!("--max_length {tokens}")),
        (keys::COMPLETION_LEN, tokens) if matches!(job.task, Task::Ppo(_)) => {
            as_argument(format!("--response_length {tokens}"))
        }
        (keys::COMPLETION_LEN, tokens) => match job.task.grpo() {
            Some(_) => as_argument(format!("--max_completion_length {tokens}")),
            // `max_length` is that of prompt and answer together.
            None => {
                let new = tokens.parse::<u64>().unwrap_or_default();
                let old = job.task.facts().completion_len().unwrap_or_default();
                as_argument(format!("--max_length {}", job.seq_len.saturating_sub(old).saturating_add(new)))
            }
        },
        _ => trainer_lines(job, key, value),
    }
}
