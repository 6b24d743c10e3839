//! Hugging Face's `TrainingArguments` on the command line (transformers 5: `HfArgumentParser`).

use std::path::Path;
use tonnage_core::job::keys;
use tonnage_core::job::keys::{GRADIENT_ACCUMULATION_STEPS, MICRO_BATCH_SIZE};

use super::{Adapter, RESUME, flags};
use crate::RunError;

pub(super) static HF_TRAINER: Adapter =
    Adapter { name: "Hugging Face Trainer", matches: is_hf_trainer, set: set_argument, finish: |_, _| {} };

/// Flags by which `TrainingArguments` are known: `--output_dir` alone is many a script's own.
const KNOWN_BY: [&str; 6] = [
    "--per_device_train_batch_size",
    "--per_device_eval_batch_size",
    "--save_strategy",
    "--eval_strategy",
    "--logging_strategy",
    "--lr_scheduler_type",
];

fn is_hf_trainer(argv: &[String]) -> bool {
    flags::has_flag(argv, &KNOWN_BY)
}

pub(super) fn set_argument(argv: &mut Vec<String>, key: &str, value: &str, _folder: &Path) -> Result<bool, RunError> {
    let Some((flag, value)) = flag_for_key(key, value) else { return Ok(false) };
    flags::set_flag(argv, flag, &value);
    Ok(true)
}

/// The flag that says `key`, and how it says `value`.
fn flag_for_key(key: &str, value: &str) -> Option<(&'static str, String)> {
    let flag = match key {
        MICRO_BATCH_SIZE => "--per_device_train_batch_size",
        GRADIENT_ACCUMULATION_STEPS => "--gradient_accumulation_steps",
        keys::GRADIENT_CHECKPOINTING => return Some(("--gradient_checkpointing", switch_text(value))),
        keys::OPTIMIZER => return Some(("--optim", optim_name(value)?.to_owned())),
        "liger" => return Some(("--use_liger_kernel", switch_text(value))),
        RESUME => "--resume_from_checkpoint",
        _ => return None,
    };
    Some((flag, value.to_owned()))
}

fn switch_text(value: &str) -> String {
    if matches!(value, "true" | "1" | "every_layer") { "True" } else { "False" }.to_owned()
}

/// Optimizers whose names are those of `OptimizerNames`.
const THEIRS: &str = "schedule_free_adamw schedule_free_radam schedule_free_sgd paged_adamw_8bit paged_adamw_32bit lion_8bit lion_32bit \
                      paged_lion_8bit paged_lion_32bit ademamix ademamix_8bit paged_ademamix_32bit paged_ademamix_8bit rmsprop rmsprop_bnb_8bit \
                      rmsprop_bnb_32bit adagrad stable_adamw grokadamw galore_adamw_8bit galore_adafactor";

/// The name of an optimizer in `OptimizerNames`.
fn optim_name(value: &str) -> Option<&'static str> {
    match value {
        "adamw" => Some("adamw_torch"),
        "adamw_fused" | "1" => Some("adamw_torch_fused"),
        "adamw8bit" | "adamw_8bit" => Some("adamw_bnb_8bit"),
        "adamw_torch_8bit" => Some("adamw_torch_8bit"),
        "adamw_torch_4bit" => Some("adamw_torch_4bit"),
        "galore_adamw" => Some("galore_adamw"),
        "apollo_adamw" => Some("apollo_adamw"),
        "adafactor" | "transformers_adafactor" => Some("adafactor"),
        _ => THEIRS.split(' ').find(|theirs| *theirs == value),
    }
}
