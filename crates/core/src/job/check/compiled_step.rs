//! What optimizers that were measured on whole parameters do not go with here.

use crate::job::keys;
use crate::job::{JobError, JobErrorKind, JobSpec, Precision, Strategy};

/// Refuses them where ranks divide parameters or states.
pub(super) fn check_compiled_step(job: &JobSpec) -> Result<(), JobError> {
    let has_bf16 = job.lora.is_none() && matches!(job.precision, Precision::Bf16 | Precision::Bf16Amp);
    if has_bf16 && !job.optimizer.takes_bf16() && job.task.trains() {
        let problem =
            "`optimizer`: bitsandbytes 0.50 has no RMSprop for gradients in bf16, and fails at the first step";
        return Err(JobError::new(problem)
            .about(&[keys::OPTIMIZER, keys::PRECISION])
            .hint("use optimizer = \"rmsprop\", or precision = \"amp-bf16\""));
    }
    let is_whole = matches!(job.parallel.strategy, Strategy::None | Strategy::Ddp(_));
    if is_whole || !job.optimizer.needs_whole() || !job.task.trains() {
        return Ok(());
    }
    let problem = "`optimizer`: this one is simulated on one GPU and under DDP";
    Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
        .about(&[keys::OPTIMIZER, keys::PARALLEL])
        .hint("use adamw_fused")
        .or_rehearse())
}

#[cfg(test)]
mod tests {
    use crate::job::{JobSource, keys};

    #[test]
    fn torchao_is_not_divided() {
        let error = |strategy: &str| {
            let source = JobSource::model("gpt2").set(keys::OPTIMIZER, "adamw_torch_8bit").set(keys::WORLD_SIZE, 2);
            source.set(keys::PARALLEL, strategy).resolve(&[]).err()
        };
        assert!(error("ddp").is_none());
        for strategy in ["zero1", "fsdp1", "fsdp2", "deepspeed"] {
            let error = error(strategy).unwrap();
            assert_eq!(error.key(), Some(keys::OPTIMIZER), "{strategy}: {error}");
        }
    }
}
