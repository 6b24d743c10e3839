//! What FSDP2's shards, which are DTensors, do not go with, in PyTorch or here.

use crate::job::keys;
use crate::job::{JobError, JobSpec, OptimizerKind, Strategy};

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

/// Refuses groups of ranks, each of which shards a model, that are not as large or are one rank.
pub(super) fn fits_hybrid_shards(job: &JobSpec) -> Result<(), JobError> {
    let (replicate_size, key) = match job.parallel.strategy {
        Strategy::Fsdp1(options) => (options.replicate_size, keys::FSDP1_REPLICATE_SIZE),
        Strategy::Fsdp2(policy) => (policy.replicate_size, keys::FSDP2_REPLICATE_SIZE),
        _ => return Ok(()),
    };
    let world_size = job.parallel.world_size;
    if replicate_size == 1 || (world_size.is_multiple_of(replicate_size) && world_size > replicate_size) {
        return Ok(());
    }
    let problem = format!("`{key}`: {world_size} ranks are no {replicate_size} groups of two or more ranks");
    Err(JobError::new(problem).about(&[key, keys::WORLD_SIZE]).hint("parallel = \"ddp\" replicates without shards"))
}

/// What PyTorch 2.11 says of a step over DTensors, measured by `testdata/rehearse/reference/measure_parallel.py`.
const fn fails_on_dtensors(optimizer: OptimizerKind) -> Option<&'static str> {
    match optimizer {
        bitsandbytes if bitsandbytes.is_bitsandbytes() => {
            Some("bitsandbytes' kernels take no DTensor (\"got mixed torch.Tensor and DTensor\")")
        }
        OptimizerKind::Adafactor => {
            Some("norms of rows and columns change how a DTensor lies, which it refuses in place")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::job::{JobSource, keys};

    #[test]
    fn groups_of_ranks_divide_them_and_shard() {
        let error = |strategy: &str, ranks: u64, replicate_size: u64| {
            let key = format!("{strategy}.replicate_size");
            let source = JobSource::model("gpt2").set("world_size", ranks).set("parallel", strategy).set("seq_len", 64);
            source.set(&key, replicate_size).resolve(&[]).err()
        };
        for strategy in ["fsdp1", "fsdp2"] {
            assert!(error(strategy, 8, 2).is_none());
            for (ranks, replicate_size) in [(8, 3), (4, 4)] {
                let error = error(strategy, ranks, replicate_size).unwrap();
                assert!(error.keys.iter().any(|key| key == keys::WORLD_SIZE), "{error}");
            }
        }
    }
}
