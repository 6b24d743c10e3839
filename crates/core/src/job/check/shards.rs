//! What FSDP2's shards, which are DTensors, do not go with, in PyTorch or here.

use crate::job::keys;
use crate::job::{JobError, JobSpec, OptimizerKind};

/// Refuses a scaled loss and optimizers that look beyond a single element.
pub(super) fn fits_shards(job: &JobSpec) -> Result<(), JobError> {
    if job.precision.scales_loss() {
        return Err(JobError::new("`precision`: a gradient scaler is not simulated under FSDP2")
            .about(&[keys::PRECISION])
            .hint("use bf16, or fp32 with fsdp2.param_dtype = \"bf16\"")
            .or_rehearse());
    }
    if let Some(why) = fails_on_dtensors(job.optimizer) {
        return Err(JobError::new(format!("`optimizer`: it fails at its first step under FSDP2: {why}"))
            .about(&[keys::OPTIMIZER, keys::PARALLEL])
            .hint(
                "use adamw_fused, lion or sgd; shards of FSDP1 and of DeepSpeed are plain tensors, which it takes: parallel = \
                 \"deepspeed\" estimates the latter, `tonnage rehearse --gpus N -- torchrun --nproc-per-node N train.py` runs \
                 your script over either",
            ));
    }
    if matches!(job.optimizer, OptimizerKind::AdamAtan2 | OptimizerKind::Muon) {
        return Err(JobError::new("`optimizer`: this one is not simulated on sharded parameters")
            .about(&[keys::OPTIMIZER])
            .hint("use adamw_fused, lion or sgd")
            .or_rehearse());
    }
    Ok(())
}

/// What PyTorch 2.11 says of a step over DTensors, measured by `testdata/rehearse/reference/measure_parallel.py`.
const fn fails_on_dtensors(optimizer: OptimizerKind) -> Option<&'static str> {
    match optimizer {
        OptimizerKind::Adamw8bit | OptimizerKind::PagedAdamw8bit | OptimizerKind::PagedAdamw32bit => {
            Some("bitsandbytes' kernels take no DTensor (\"got mixed torch.Tensor and DTensor\")")
        }
        OptimizerKind::Adafactor => {
            Some("norms of rows and columns change how a DTensor lies, which it refuses in place")
        }
        _ => None,
    }
}
