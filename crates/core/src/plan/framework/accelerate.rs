//! accelerate 1.15: flags of `accelerate launch` (commands/launch.py), and handlers of `Accelerator` where it has none.

use super::{Line, as_code, as_launcher};
use crate::job::keys;

/// What a loop under accelerate is told.
pub(super) fn config_lines(key: &str, value: &str) -> Option<Vec<Line>> {
    match (key, value) {
        (keys::GRADIENT_ACCUMULATION_STEPS, passes) => as_launcher(format!("--gradient_accumulation_steps {passes}")),
        (keys::PRECISION, "amp-bf16") => as_launcher("--mixed_precision bf16"),
        (keys::DDP_GRADIENT_AS_BUCKET_VIEW, _) => {
            as_code("Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(gradient_as_bucket_view=True)])")
        }
        _ => launch_lines(key, value),
    }
}

/// What its launcher is told about ranks.
pub(super) fn launch_lines(key: &str, value: &str) -> Option<Vec<Line>> {
    match (key, value) {
        (keys::WORLD_SIZE, "1") => as_launcher("--num_processes 1"),
        (keys::WORLD_SIZE, ranks) => as_launcher(format!("--num_processes {ranks}")),
        (keys::PARALLEL, "fsdp1") => {
            as_launcher("--use_fsdp --fsdp_version 1 --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP")
        }
        (keys::PARALLEL, "fsdp2") => {
            as_launcher("--use_fsdp --fsdp_version 2 --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP")
        }
        (keys::FSDP1_CPU_OFFLOAD | keys::FSDP2_CPU_OFFLOAD, _) => as_launcher("--fsdp_offload_params true"),
        (keys::DEEPSPEED_OFFLOAD_OPTIMIZER, _) => as_launcher("--offload_optimizer_device cpu"),
        (keys::PARALLEL, "zero1") => Some(vec![
            Line::Launcher("--use_deepspeed --zero_stage 1".to_owned()),
            Line::Remark(
                "accelerate has no option for ZeroRedundancyOptimizer, which is what was estimated; DeepSpeed's stage 1 divides \
                 the state as well"
                    .to_owned(),
            ),
        ]),
        (keys::PARALLEL, "ddp") => as_launcher("--multi_gpu"),
        (keys::PARALLEL, _) => Some(Vec::new()),
        _ => None,
    }
}
