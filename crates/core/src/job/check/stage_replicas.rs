//! Pipelines whose stages several ranks have: how the ranks divide, and what was not measured in DDP or FSDP2 round a stage.

use crate::dtype::DType;
use crate::job::keys;
use crate::job::{Ddp, Fsdp2, JobError, JobSpec, Precision, ShardInit, StageReplicas, StageWrapper, Strategy};

use super::pipeline::{ONE_EACH, all_reasons, has_few_micro_batches};
use super::reasons::{Reason, refuse_first};
use super::shards::fits_shards;

/// Refuses ranks that are no mesh of two or more stages.
pub(super) fn divides_ranks(job: &JobSpec) -> Result<(), JobError> {
    let Some(StageReplicas { ranks, .. }) = job.parallel.stage_replicas() else { return Ok(()) };
    let world_size = job.parallel.world_size;
    if ranks == 0 || !world_size.is_multiple_of(ranks) {
        let problem = format!("`world_size`: {world_size} ranks are no stages of {ranks} ranks each");
        return Err(JobError::new(problem)
            .about(&[keys::PIPELINE_DATA_PARALLEL_SIZE, keys::WORLD_SIZE])
            .hint("world_size is the pipeline's ranks times pipeline.data_parallel_size"));
    }
    if world_size < 2 * ranks {
        let problem = format!("{ranks} ranks that have the same stage are all {world_size}: one rank has no pipeline");
        return Err(JobError::new(problem)
            .about(&[keys::PIPELINE_DATA_PARALLEL_SIZE, keys::WORLD_SIZE])
            .hint("set parallel = \"ddp\" or \"fsdp2\" without a pipeline, or world_size to a multiple of pipeline.data_parallel_size"));
    }
    Ok(())
}

/// Refuses what is not simulated of ranks that have the same stage: no other answer stands in for it.
pub(super) fn fits_replicas(job: &JobSpec) -> Result<(), JobError> {
    let Some(StageReplicas { wrapper, .. }) = job.parallel.stage_replicas() else { return Ok(()) };
    let Strategy::PipelineParallel { stages, .. } = job.parallel.strategy else { return Ok(()) };
    if has_few_micro_batches(job) {
        let problem = format!("1F1B takes as many micro-batches as there are stages, {stages}");
        return Err(JobError::new(problem)
            .about(&[keys::GRADIENT_ACCUMULATION_STEPS, keys::PIPELINE_SCHEDULE])
            .hint(format!("set gradient_accumulation_steps to {stages} or more")));
    }
    let of_wrapper = match wrapper {
        StageWrapper::Ddp(ddp) => ddp_reasons(ddp).to_vec(),
        StageWrapper::Fsdp2(policy) => {
            fits_shards(job)?;
            fsdp2_reasons(job, policy).to_vec()
        }
    };
    let on_their_own =
        |reason: Reason| if reason.3 == ONE_EACH { (reason.0, reason.1, reason.2, ALONE) } else { reason };
    let reasons = all_reasons(job).map(on_their_own).chain(of_wrapper);
    refuse_first(keys::PIPELINE_DATA_PARALLEL_SIZE, keys::PIPELINE_DATA_PARALLEL_SIZE, reasons)
}

const ALONE: &str = "set pipeline.data_parallel_size = 1 and world_size to the pipeline's ranks: what a rank needs without the wrapper, whose range \
                     is wide there";
const LEAVE_OUT: &str = "leave it out";

fn ddp_reasons(ddp: Ddp) -> [Reason; 2] {
    [
        (keys::DDP_STATIC_GRAPH, ddp.static_graph, "static graphs were not measured round a stage", LEAVE_OUT),
        (
            keys::DDP_FIND_UNUSED_PARAMETERS,
            ddp.find_unused_parameters,
            "DDP that looks for unused parameters was not measured round a stage",
            LEAVE_OUT,
        ),
    ]
}

fn fsdp2_reasons(job: &JobSpec, policy: Fsdp2) -> [Reason; 7] {
    let casts = policy.param_dtype.is_some();
    let is_measured_cast = matches!(policy.param_dtype, None | Some(DType::Bfloat16))
        && matches!(policy.reduce_dtype, None | Some(DType::Bfloat16 | DType::Float32));
    let stages = job.parallel.stages_of_rank().count();
    [
        (
            keys::FSDP2_REPLICATE_SIZE,
            policy.replicate_size > 1,
            "a mesh of three dimensions was not measured",
            LEAVE_OUT,
        ),
        (
            keys::FSDP2_CONTEXT_PARALLEL_SIZE,
            policy.token_ranks > 1,
            "a mesh of three dimensions was not measured",
            LEAVE_OUT,
        ),
        (
            keys::FSDP2_SHARD_ROOT_ONLY,
            policy.shard_root_only,
            "layers that are sharded one by one were measured",
            LEAVE_OUT,
        ),
        (
            keys::FSDP2_INIT,
            policy.init != ShardInit::Meta,
            "stages that are sharded on the meta device were measured",
            LEAVE_OUT,
        ),
        (keys::FSDP2_CPU_OFFLOAD, policy.cpu_offload.is_some(), "stages on the host were not measured", LEAVE_OUT),
        (
            keys::FSDP2_PARAM_DTYPE,
            !is_measured_cast
                || (casts && job.precision != Precision::Fp32)
                || (!casts && policy.reduce_dtype.is_some()),
            "gathered weights in bf16 over shards in fp32 were measured, and shards without a policy",
            "set precision = \"fp32\" and fsdp2.param_dtype = \"bf16\", or leave fsdp2.param_dtype and fsdp2.reduce_dtype out",
        ),
        (
            keys::PIPELINE_STAGES_PER_RANK,
            stages > MOST_SHARDED,
            "more than 8 sharded stages on a rank share PyTorch's streams, which is not simulated",
            "lower it",
        ),
    ]
}

/// PyTorch deals 32 streams of high priority in turn, and each sharded stage takes three.
const MOST_SHARDED: usize = 8;
