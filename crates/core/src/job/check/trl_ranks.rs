//! Under which wrappers ranks of TRL's trainers are simulated.

use super::trainer::without_ranks;
use crate::job::keys;
use crate::job::{DeepSpeed, JobError, JobErrorKind, JobSpec, Strategy, Task};

/// Refuses what was not measured.
pub(super) fn fits_trl_ranks(job: &JobSpec) -> Result<(), JobError> {
    let facts = job.task.facts();
    let completes = facts.completion_len().is_some() && !matches!(job.task, Task::Gkd(_));
    let is_sharded = match job.parallel.strategy {
        Strategy::Ddp(_) => return Ok(()),
        Strategy::Fsdp1(_) | Strategy::DeepSpeed(DeepSpeed { stage: 3, .. }) => facts.learns_preferences(),
        // A model that generates completions is whole there; encoder-decoders and GKD were measured under DDP alone.
        Strategy::DeepSpeed(_) => facts.learns_preferences() || completes,
        _ => false,
    };
    if !is_sharded {
        return Err(unmeasured_wrapper(job));
    }
    if job.quantization.is_some() {
        let problem = "`quantization`: a quantized base that learns preferences is not simulated in shards";
        return Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
            .about(&[keys::QUANTIZATION, keys::PARALLEL])
            .hint("set parallel = \"ddp\"")
            .or_rehearse());
    }
    let is_flat = matches!(job.parallel.strategy, Strategy::Fsdp1(_));
    if job.lora.is_some() && matches!(job.parallel.strategy, Strategy::DeepSpeed(DeepSpeed { stage: 3, .. })) {
        let problem = "`lora`: adapters that learn preferences were not measured under DeepSpeed's stage 3";
        return Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
            .about(&[keys::LORA_R, keys::DEEPSPEED_STAGE])
            .hint("set deepspeed.stage = 2, which holds the base whole: each rank needs at least as much")
            .or_rehearse());
    }
    if job.lora.is_some() && is_flat && matches!(job.task, Task::Reward(_)) {
        let problem = "`lora`: a head that is trained in full beside adapters is not simulated on a model in shards";
        return Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
            .about(&[keys::LORA_R, keys::PARALLEL])
            .hint("set parallel = \"ddp\": each rank needs at least as much")
            .or_rehearse());
    }
    let Some((precomputes, is_on)) = facts.precomputed_reference() else { return Ok(()) };
    if is_on {
        let problem = format!("`{precomputes}`: a pass over the data before the model is sharded is not simulated");
        return Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
            .about(&[precomputes, keys::PARALLEL])
            .hint("leave it out: the reference is sharded too")
            .or_rehearse());
    }
    Ok(())
}

/// Under which wrappers the task's ranks are simulated, and which of them holds least.
fn unmeasured_wrapper(job: &JobSpec) -> JobError {
    let facts = job.task.facts();
    let whole = match job.parallel.strategy {
        Strategy::DeepSpeed(_) => "set deepspeed.stage = 2, whose ranks hold the weights whole",
        _ => "set parallel = \"deepspeed\" with deepspeed.stage = 2, whose ranks hold the weights whole",
    };
    let completes = facts.completion_len().is_some() && !matches!(job.task, Task::Gkd(_));
    let (wrappers, instead) = match (facts.learns_preferences(), completes) {
        (true, _) => ("\"ddp\", \"fsdp1\" and \"deepspeed\"", Some("set parallel = \"fsdp1\"")),
        (false, true) => ("\"ddp\", and \"deepspeed\" of stage 1 and 2", Some(whole)),
        (false, false) => ("\"ddp\" alone", None),
    };
    let task = serde_json::to_value(job.task.name()).unwrap_or_default();
    let problem = format!("`parallel`: ranks of task = {task} are simulated under parallel = {wrappers}");
    let error = JobError::new(problem).about(&[keys::PARALLEL, keys::WORLD_SIZE]);
    match instead.filter(|_| job.parallel.strategy != Strategy::AllReduce) {
        Some(instead) => error.hint(instead).or_rehearse(),
        None => error.hint(without_ranks(job.parallel.strategy)),
    }
}
