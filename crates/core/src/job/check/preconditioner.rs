//! What SOAP and Shampoo do not go with.

use crate::job::keys;
use crate::job::{Framework, JobError, JobSpec, OptimizerKind, Strategy};
use crate::op::largest_of_svd;

use super::reasons::refuse_first;

/// Refuses what was not measured: other loops than one's own, shards, adapters and quantized bases; and what no GPU does.
pub(super) fn fits_preconditioner(job: &JobSpec) -> Result<(), JobError> {
    if !job.optimizer.preconditions() || !job.task.trains() {
        return Ok(());
    }
    const OTHER: &str = "take another optimizer";
    let is_known = job.task.name().has_labels() && job.model.is_in_transformers();
    let is_whole = matches!(job.parallel.strategy, Strategy::None | Strategy::Ddp(_));
    let refused = [
        (keys::TASK, !is_known, "it is simulated of transformers' models on labels", OTHER),
        (
            keys::FRAMEWORK,
            job.framework != Framework::Loop,
            "transformers' Trainer has no such `optim`: it is simulated in a loop of one's own",
            "set framework = \"loop\"",
        ),
        (keys::PARALLEL, !is_whole, "a shard is no matrix that could be preconditioned", "set parallel = \"ddp\""),
        (keys::LORA_R, job.lora.is_some(), "it was measured of weights that are trained whole", OTHER),
        (keys::QUANTIZATION, job.quantization.is_some(), "quantized weights have no gradients", OTHER),
        (
            keys::OPTIMIZER_IN_BACKWARD,
            job.optimizer_in_backward,
            "it was measured in steps of its own",
            "leave `optimizer_in_backward` out",
        ),
    ];
    refuse_first(&format!("`{}` = SOAP or Shampoo", keys::OPTIMIZER), keys::OPTIMIZER, refused)?;
    let vocabulary = job.model.config.get("vocab_size").and_then(|size| size.as_u64()).unwrap_or_default();
    if job.optimizer == OptimizerKind::Shampoo && vocabulary > largest_of_svd() {
        let problem = format!(
            "`{}` = Shampoo decomposes a square matrix of the vocabulary's {vocabulary} rows, of which cuSOLVER takes no more than {}: \
             the step fails",
            keys::OPTIMIZER,
            largest_of_svd()
        );
        return Err(JobError::new(problem).about(&[keys::OPTIMIZER]).hint("set optimizer = \"soap\""));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::job::{JobSource, keys};

    #[test]
    fn what_was_not_measured_is_refused_by_its_key() {
        let source = || JobSource::model("gpt2").set("framework", "loop").set("seq_len", 64).set("optimizer", "soap");
        assert!(source().resolve(&[]).is_ok());
        for (key, value) in [
            (keys::FRAMEWORK, "trainer"),
            (keys::LORA_R, "8"),
            (keys::OPTIMIZER_IN_BACKWARD, "true"),
            (keys::OPTIM_ARGS, "precondition_1d=True"),
        ] {
            let error = source().set(key, value).resolve(&[]).unwrap_err();
            assert!(error.keys.iter().any(|told| told == key), "{key}: {error}");
        }
    }

    #[test]
    fn a_vocabulary_can_be_too_large_for_shampoo() {
        let source = |optimizer: &str| {
            let source = JobSource::model("gpt2").set("framework", "loop").set("seq_len", 64);
            source.set("optimizer", optimizer).resolve(&[])
        };
        assert!(source("soap").is_ok());
        assert!(source("shampoo").unwrap_err().to_string().contains("cuSOLVER"));
    }
}
