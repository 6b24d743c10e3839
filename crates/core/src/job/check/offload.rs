//! What offloading to the host is not simulated with.

use crate::job::keys;
use crate::job::{DeepSpeed, Fsdp1, Fsdp2, JobError, JobErrorKind, JobSpec, OptimizerKind, Strategy};

/// Refuses what was not measured with what the job offloads.
pub(super) fn fits_offload(job: &JobSpec) -> Result<(), JobError> {
    match job.parallel.strategy {
        Strategy::Fsdp1(Fsdp1 { cpu_offload: true, .. }) => fits_host(job, keys::FSDP1_CPU_OFFLOAD),
        Strategy::Fsdp2(Fsdp2 { cpu_offload: Some(_), .. }) => fits_host(job, keys::FSDP2_CPU_OFFLOAD),
        Strategy::DeepSpeed(DeepSpeed { offload_optimizer: Some(_), .. }) => {
            fits_host(job, keys::DEEPSPEED_OFFLOAD_OPTIMIZER)
        }
        _ => Ok(()),
    }
}

/// An optimizer that steps on the host must be one that PyTorch or DeepSpeed has there.
fn fits_host(job: &JobSpec, key: &'static str) -> Result<(), JobError> {
    let is_simulated = matches!(
        job.optimizer,
        OptimizerKind::Adam
            | OptimizerKind::Adamw
            | OptimizerKind::AdamwFused
            | OptimizerKind::AdamwForloop
            | OptimizerKind::Sgd
            | OptimizerKind::SgdMomentum
    );
    if !is_simulated {
        let why = format!("`{key}`: this optimizer is not simulated on the host");
        return Err(refusal(&why, &[key, keys::OPTIMIZER]).hint("use adamw or sgd"));
    }
    Ok(())
}

fn refusal(why: &str, about: &[&str]) -> JobError {
    JobError::of_kind(JobErrorKind::Unsimulated, why.to_owned()).about(about).or_rehearse()
}
