//! Hugging Face's Trainer and TRL's trainers: arguments of `TrainingArguments`, `ModelConfig` and the trainers' configs
//! (transformers 5.17, training_args.py; trl 1.16, trainer/*_config.py), and accelerate's launcher.

use super::{Line, accelerate, argument, code};
use crate::job::JobSpec;

/// What both know: `TrainingArguments`.
pub(super) fn trainer(job: &JobSpec, key: &str, value: &str) -> Option<Vec<Line>> {
    match (key, value) {
        ("micro_batch_size", rows) => argument(format!("--per_device_train_batch_size {rows}")),
        ("gradient_accumulation_steps", passes) => argument(format!("--gradient_accumulation_steps {passes}")),
        ("gradient_checkpointing", _) => argument("--gradient_checkpointing True"),
        ("optimizer", "adamw8bit") => argument("--optim adamw_bnb_8bit"),
        ("optimizer", _) => argument("--optim adamw_torch_fused"),
        ("precision", "amp-bf16") => argument("--bf16 True"),
        ("loss" | "use_liger_kernel", _) => argument("--use_liger_kernel True"),
        ("ddp.gradient_as_bucket_view", _) => {
            code("trainer.accelerator.ddp_handler.gradient_as_bucket_view = True  # before trainer.train()")
        }
        ("precision", _) => {
            let mut lines = vec![Line::Argument("--bf16 False".to_owned())];
            lines.extend(super::pytorch::code(job, key, value));
            Some(lines)
        }
        ("parallel" | "world_size", _) => accelerate::launch(key, value),
        _ => None,
    }
}

/// TRL's own arguments, then those of the Trainer.
pub(super) fn trl(job: &JobSpec, key: &str, value: &str) -> Option<Vec<Line>> {
    match (key, value) {
        ("grpo.steps_per_generation", steps) => argument(format!("--steps_per_generation {steps}")),
        ("grpo.beta", beta) => argument(format!("--beta {beta}")),
        ("vllm.sleep_mode", _) => argument("--vllm_enable_sleep_mode True"),
        ("vllm.gpu_memory_utilization", share) => argument(format!("--vllm_gpu_memory_utilization {share}")),
        ("dpo.precompute_ref_log_probs", _) => argument("--precompute_ref_log_probs True"),
        ("precision", "amp-bf16") => argument("--dtype float32 --bf16 True"),
        ("precision", _) => argument("--dtype bfloat16 --bf16 False"),
        ("attention", name) => argument(format!("--attn_implementation {name}")),
        ("lora.r", r) => argument(format!("--use_peft --lora_r {r}")),
        ("lora.targets", targets) => argument(format!("--lora_target_modules {targets}")),
        ("seq_len", tokens) => argument(format!("--max_length {tokens}")),
        ("completion_len", tokens) => match job.task.dpo() {
            // `max_length` is that of prompt and answer together.
            Some(dpo) => argument(format!("--max_length {}", dpo.prompt_len.saturating_add(dpo.completion_len))),
            None => argument(format!("--max_completion_length {tokens}")),
        },
        _ => trainer(job, key, value),
    }
}
