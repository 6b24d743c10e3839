//! What FSDP1's flat parameters do not go with here.

use crate::job::keys;
use crate::job::{Fsdp1, JobError, JobErrorKind, JobSpec, OptimizerKind, Precision, Task};

/// Refuses what was not measured under `FullyShardedDataParallel`.
pub(super) fn fits_flat_shards(job: &JobSpec, options: Fsdp1) -> Result<(), JobError> {
    let refused = |problem: &str, about: &[&str]| {
        let problem = format!("parallel = \"fsdp1\": {problem}");
        Err(JobError::of_kind(JobErrorKind::Unsimulated, problem).about(about))
    };
    if job.parallel.world_size < 2 {
        return refused("on one rank PyTorch shards nothing (NO_SHARD), which is not simulated", &[keys::WORLD_SIZE])
            .map_err(|error| error.hint("set parallel = \"none\", or more ranks").or_rehearse());
    }
    if job.task != Task::CausalLm && !job.task.facts().learns_preferences() {
        return refused(
            "of tasks causal_lm and those that learn preferences are simulated",
            &[keys::TASK, keys::PARALLEL],
        )
        .map_err(|error| error.hint("set parallel = \"fsdp2\"").or_rehearse());
    }
    if job.lora.is_some() && options.shard_root_only {
        return refused(
            "one flat parameter holds no adapters beside what is frozen",
            &[keys::FSDP1_SHARD_ROOT_ONLY, keys::LORA_R],
        )
        .map_err(|error| {
            error.hint("leave fsdp1.shard_root_only out: peft's policy wraps each adapter").or_rehearse()
        });
    }
    // `ShardedGradScaler` over adapters was measured; what it tells AdamW's fused kernel has a shape that PyTorch refuses.
    let is_measured_scaler =
        job.precision == Precision::Fp16Amp && job.lora.is_some() && job.optimizer == OptimizerKind::Adamw;
    if job.precision.scales_loss() && !is_measured_scaler {
        return refused("its gradient scaler is not simulated", &[keys::PRECISION])
            .map_err(|error| error.hint("use bf16, or fp32 with fsdp1.param_dtype = \"bf16\"").or_rehearse());
    }
    if options.cpu_offload && job.gradient_accumulation_steps > 1 {
        let keys = [keys::FSDP1_CPU_OFFLOAD, keys::GRADIENT_ACCUMULATION_STEPS];
        return refused("gradients that accumulate beside an offload are not simulated", &keys)
            .map_err(JobError::or_rehearse);
    }
    if !is_measured(job.optimizer) {
        return refused("this optimizer is not simulated over flat parameters", &[keys::OPTIMIZER, keys::PARALLEL])
            .map_err(|error| error.hint("use adamw or sgd").or_rehearse());
    }
    Ok(())
}

const fn is_measured(optimizer: OptimizerKind) -> bool {
    matches!(
        optimizer,
        OptimizerKind::Adam
            | OptimizerKind::Adamw
            | OptimizerKind::AdamwFused
            | OptimizerKind::AdamwForloop
            | OptimizerKind::Sgd
            | OptimizerKind::SgdMomentum
    )
}
