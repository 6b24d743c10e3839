//! Hugging Face's `TrainingArguments` on the command line (transformers 5: `HfArgumentParser`).

use std::path::Path;
use tonnage_core::job::keys;
use tonnage_core::job::keys::{GRADIENT_ACCUMULATION_STEPS, MICRO_BATCH_SIZE};

use super::{Adapter, RESUME, flags};
use crate::RunError;

pub(super) static HF_TRAINER: Adapter = Adapter { name: "Hugging Face Trainer", matches, set, finish: |_, _| {} };

/// Flags by which `TrainingArguments` are known: `--output_dir` alone is many a script's own.
const KNOWN_BY: [&str; 6] = [
    "--per_device_train_batch_size",
    "--per_device_eval_batch_size",
    "--save_strategy",
    "--eval_strategy",
    "--logging_strategy",
    "--lr_scheduler_type",
];

fn matches(argv: &[String]) -> bool {
    flags::has(argv, &KNOWN_BY)
}

pub(super) fn set(argv: &mut Vec<String>, key: &str, value: &str, _folder: &Path) -> Result<bool, RunError> {
    let Some((flag, value)) = flag(key, value) else { return Ok(false) };
    flags::set(argv, flag, &value);
    Ok(true)
}

/// The flag that says `key`, and how it says `value`.
fn flag(key: &str, value: &str) -> Option<(&'static str, String)> {
    let flag = match key {
        MICRO_BATCH_SIZE => "--per_device_train_batch_size",
        GRADIENT_ACCUMULATION_STEPS => "--gradient_accumulation_steps",
        keys::GRADIENT_CHECKPOINTING => return Some(("--gradient_checkpointing", switch(value))),
        keys::OPTIMIZER => return Some(("--optim", optim(value)?.to_owned())),
        "liger" => return Some(("--use_liger_kernel", switch(value))),
        RESUME => "--resume_from_checkpoint",
        _ => return None,
    };
    Some((flag, value.to_owned()))
}

fn switch(value: &str) -> String {
    if matches!(value, "true" | "1" | "every_layer") { "True" } else { "False" }.to_owned()
}

/// The name of an optimizer in `OptimizerNames`.
fn optim(value: &str) -> Option<&'static str> {
    match value {
        "adamw" => Some("adamw_torch"),
        "adamw_fused" | "1" => Some("adamw_torch_fused"),
        "adamw8bit" | "adamw_8bit" => Some("adamw_bnb_8bit"),
        "adafactor" => Some("adafactor"),
        _ => None,
    }
}
