//! accelerate 1.15: flags of `accelerate launch` (commands/launch.py), and handlers of `Accelerator` where it has none.

use super::{Line, code, launcher};

/// What a loop under accelerate is told.
pub(super) fn lines(key: &str, value: &str) -> Option<Vec<Line>> {
    match (key, value) {
        ("gradient_accumulation_steps", passes) => launcher(format!("--gradient_accumulation_steps {passes}")),
        ("precision", "amp-bf16") => launcher("--mixed_precision bf16"),
        ("ddp.gradient_as_bucket_view", _) => {
            code("Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(gradient_as_bucket_view=True)])")
        }
        _ => launch(key, value),
    }
}

/// What its launcher is told about ranks.
pub(super) fn launch(key: &str, value: &str) -> Option<Vec<Line>> {
    match (key, value) {
        ("world_size", "1") => launcher("--num_processes 1"),
        ("world_size", ranks) => launcher(format!("--num_processes {ranks}")),
        ("parallel", "fsdp2") => {
            launcher("--use_fsdp --fsdp_version 2 --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP")
        }
        ("parallel", "zero1") => Some(vec![
            Line::Launcher("--use_deepspeed --zero_stage 1".to_owned()),
            Line::Remark(
                "accelerate has no option for ZeroRedundancyOptimizer, which is what was estimated; DeepSpeed's stage 1 divides \
                 the state as well"
                    .to_owned(),
            ),
        ]),
        ("parallel", "ddp") => launcher("--multi_gpu"),
        ("parallel", _) => Some(Vec::new()),
        _ => None,
    }
}
