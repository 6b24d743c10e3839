//! DeepSpeed: lines of its JSON config, and its launcher.

use super::{Line, as_config, as_launcher, as_remark};
use crate::job::keys;

/// What DeepSpeed is told.
pub(super) fn config_lines(key: &str, value: &str) -> Option<Vec<Line>> {
    match (key, value) {
        (keys::MICRO_BATCH_SIZE, rows) => as_config(format!("\"train_micro_batch_size_per_gpu\": {rows}")),
        (keys::GRADIENT_ACCUMULATION_STEPS, passes) => as_config(format!("\"gradient_accumulation_steps\": {passes}")),
        (keys::OPTIMIZER, "adamw8bit") => {
            let mut lines = vec![Line::Config("\"zero_allow_untested_optimizer\": true".to_owned())];
            lines.push(Line::Code(
                "deepspeed.initialize(optimizer=bitsandbytes.optim.AdamW8bit(model.parameters()))".to_owned(),
            ));
            Some(lines)
        }
        (keys::OPTIMIZER, _) => as_config("\"optimizer\": {\"type\": \"AdamW\"}"),
        (keys::PRECISION, "bf16") => Some(vec![
            Line::Config("\"bf16\": {\"enabled\": true}".to_owned()),
            Line::Remark("DeepSpeed keeps fp32 weights beside those in bf16, which the estimate leaves out".to_owned()),
        ]),
        (keys::DEEPSPEED_OFFLOAD_OPTIMIZER, _) => {
            as_config("\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\"}}")
        }
        (keys::PARALLEL, "zero1") => as_config("\"zero_optimization\": {\"stage\": 1}"),
        (keys::PARALLEL, "fsdp1" | "fsdp2") => Some(vec![
            Line::Config("\"zero_optimization\": {\"stage\": 3}".to_owned()),
            Line::Remark(
                "stage 3 shards what FSDP does, with buckets of its own: estimate it as parallel = \"deepspeed\""
                    .to_owned(),
            ),
        ]),
        (keys::PARALLEL, _) => as_config("\"zero_optimization\": {\"stage\": 0}"),
        (keys::WORLD_SIZE, ranks) => as_launcher(format!("--num_gpus {ranks}")),
        (keys::DDP_GRADIENT_AS_BUCKET_VIEW, _) => as_remark("DeepSpeed has gradient buckets of its own"),
        _ => None,
    }
}
