//! State spread over ranks.

use super::{Applied, Remedy, Results, already_done, change_one, not_for};
use crate::job::keys;
use crate::job::{JobSpec, Spreading, Strategy};
use crate::plan::spread::{spread_over, why_together};

const NOT_SHARDED: &str = "this trainer is simulated with the whole model on each rank";

pub(super) const ZERO1: Remedy = Remedy {
    name: "zero1",
    text: "divide the optimizer's state over the ranks (ZeroRedundancyOptimizer)",
    results: Results::Same,
    caution: "",
    apply: |job| match job.parallel.strategy {
        _ if job.task.facts().spreading() == Spreading::Replicas => not_for(NOT_SHARDED),
        Strategy::Ddp(_) if job.parallel.world_size > 1 => change_one(keys::PARALLEL, "zero1"),
        Strategy::Zero1 { .. } | Strategy::Fsdp1(_) | Strategy::Fsdp2(_) | Strategy::DeepSpeed(_) => {
            already_done("state is divided already")
        }
        _ => not_for("there are no ranks under DDP"),
    },
};

pub(super) const FSDP2: Remedy = Remedy {
    name: "fsdp2",
    text: "shard parameters, gradients and optimizer state over the ranks",
    results: Results::Rounding,
    caution: "",
    apply: |job| match job.parallel.strategy {
        _ if job.task.facts().spreading() == Spreading::Replicas => not_for(NOT_SHARDED),
        Strategy::Ddp(_) | Strategy::Zero1 { .. } if job.parallel.world_size > 1 => change_one(keys::PARALLEL, "fsdp2"),
        Strategy::Fsdp1(_) | Strategy::Fsdp2(_) => already_done("parameters are sharded already"),
        _ => not_for("there are no ranks under DDP"),
    },
};

pub(super) const TWICE_THE_GPUS: Remedy = Remedy {
    name: "twice_the_gpus",
    text: "spread over twice as many GPUs, sharded where the task can be: exactly the same effective batch",
    results: Results::Rounding,
    caution: "twice as many GPUs are paid for",
    apply: doubled_gpus,
};

fn doubled_gpus(job: &JobSpec) -> Applied {
    let over = |gpus: u64| match spread_over(job, gpus.saturating_mul(2)) {
        Some(changes) if !changes.is_empty() => Ok(changes),
        _ => not_for("its rows or nodes do not divide over twice as many"),
    };
    if let Some(why) = why_together(job) {
        return not_for(why);
    }
    match job.task.facts().spreading() {
        Spreading::OwnRanks | Spreading::Replicas => over(job.parallel.world_size),
        Spreading::Nodes { gpus, .. } => over(gpus),
        Spreading::Ranks => sharded_over_twice(job),
        Spreading::OneRank => not_for("this trainer is simulated on one rank"),
    }
}

fn sharded_over_twice(job: &JobSpec) -> Applied {
    if !matches!(job.parallel.strategy, Strategy::None | Strategy::Ddp(_) | Strategy::Zero1 { .. } | Strategy::Fsdp2(_))
    {
        return not_for("the model is divided another way");
    }
    let mut changes =
        vec![(keys::WORLD_SIZE, (job.parallel.world_size * 2).to_string()), (keys::PARALLEL, "fsdp2".to_owned())];
    if job.gradient_accumulation_steps.is_multiple_of(2) {
        changes.push((keys::GRADIENT_ACCUMULATION_STEPS, (job.gradient_accumulation_steps / 2).to_string()));
    } else if job.micro_batch_size.is_multiple_of(2) {
        changes.push((keys::MICRO_BATCH_SIZE, (job.micro_batch_size / 2).to_string()));
    } else {
        return not_for("neither passes nor rows halve");
    }
    Ok(changes)
}

pub(super) const BUCKET_VIEWS: Remedy = Remedy {
    name: "gradient_as_bucket_view",
    text: "make gradients views of DDP's buckets",
    results: Results::Same,
    caution: "",
    apply: |job| match job.parallel.strategy {
        Strategy::Ddp(ddp) | Strategy::Zero1 { ddp: Some(ddp), .. } if !ddp.gradient_as_bucket_view => {
            change_one(keys::DDP_GRADIENT_AS_BUCKET_VIEW, "true")
        }
        Strategy::Ddp(_) => already_done("gradients are views already"),
        _ => not_for("there are no buckets"),
    },
};
