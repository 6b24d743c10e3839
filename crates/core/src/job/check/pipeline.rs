//! Which pipelines are run as `torch.distributed.pipelining` runs them (PyTorch 2.11), and what its schedules refuse.

use crate::job::keys;
use crate::job::{
    Attention, Ema, Framework, JobError, JobSpec, LossKernel, Precision, Schedule, Strategy, Task, TransformersVersion,
};

use super::reasons::{Reason, refuse_first};
use super::stage_replicas;

/// Micro-batches of a step, all of which are run.
const MOST_MICRO_BATCHES: u64 = 256;
/// Those whose activations are held together: more than any GPU holds.
const MOST_OPEN: u64 = 4096;

/// Whether the job is a pipeline that is run micro-batch by micro-batch; others are a model with a stage's layers.
pub(crate) fn runs_pytorch_schedule(job: &JobSpec) -> bool {
    matches!(job.parallel.strategy, Strategy::PipelineParallel { stages, .. } if stages > 1)
        && why_approximate(job).is_none()
}

/// What keeps a pipeline from being run micro-batch by micro-batch, with the key that says it.
pub(crate) fn why_approximate(job: &JobSpec) -> Option<String> {
    let Strategy::PipelineParallel { stages, .. } = job.parallel.strategy else { return None };
    if has_few_micro_batches(job) {
        let key = keys::GRADIENT_ACCUMULATION_STEPS;
        return Some(format!("`{key}`: 1F1B takes as many micro-batches as there are stages, {stages}"));
    }
    let mut reasons = all_reasons(job);
    let (key, _, why, way_out) = reasons.find(|(_, is_in_the_way, ..)| *is_in_the_way)?;
    let way_out = if way_out == ONE_EACH { String::new() } else { format!(" ({way_out})") };
    Some(format!("`{key}`: {why}{way_out}"))
}

/// Whether `Schedule1F1B` raises for it.
pub(super) fn has_few_micro_batches(job: &JobSpec) -> bool {
    let Strategy::PipelineParallel { stages, schedule, .. } = job.parallel.strategy else { return false };
    schedule == Schedule::OneForwardOneBackward && job.gradient_accumulation_steps < stages
}

/// Refuses schedules that PyTorch refuses, and interleaved ones and wrapped stages where they are not simulated.
pub(super) fn fits_pipeline(job: &JobSpec) -> Result<(), JobError> {
    stage_replicas::divides_ranks(job)?;
    fits_schedule(job)?;
    stage_replicas::fits_replicas(job)
}

fn fits_schedule(job: &JobSpec) -> Result<(), JobError> {
    let Strategy::PipelineParallel { stages, schedule, .. } = job.parallel.strategy else { return Ok(()) };
    let ranks = job.parallel.place_in_pipeline().0.max(1);
    if schedule == Schedule::GPipe && job.gradient_accumulation_steps > MOST_OPEN {
        return Err(JobError::new("pipeline.schedule = \"gpipe\" holds all micro-batches of a step open at once")
            .about(&[keys::PIPELINE_SCHEDULE, keys::GRADIENT_ACCUMULATION_STEPS])
            .hint(format!("set pipeline.schedule = \"1f1b\", or gradient_accumulation_steps to at most {MOST_OPEN}")));
    }
    if schedule != Schedule::Interleaved {
        return if stages > ranks { Err(one_stage_each()) } else { Ok(()) };
    }
    if stages / ranks < 2 {
        return Err(JobError::new("pipeline.schedule = \"interleaved_1f1b\" takes several stages on each rank")
            .about(&[keys::PIPELINE_SCHEDULE, keys::PIPELINE_STAGES_PER_RANK])
            .hint("set pipeline.stages_per_rank to 2 or more, or pipeline.schedule = \"1f1b\""));
    }
    let passes = job.gradient_accumulation_steps;
    let rounds = (passes / ranks).max(1);
    if !passes.is_multiple_of(rounds) {
        let problem =
            format!("interleaved 1F1B runs {passes} micro-batches over {ranks} ranks in {rounds} rounds, which differ");
        return Err(JobError::new(problem)
            .about(&[keys::GRADIENT_ACCUMULATION_STEPS, keys::PIPELINE_SCHEDULE])
            .hint(format!("set gradient_accumulation_steps = {}", passes - passes % rounds)));
    }
    refuse_first("pipeline.schedule = \"interleaved_1f1b\"", keys::PIPELINE_SCHEDULE, all_reasons(job))
}

fn one_stage_each() -> JobError {
    JobError::new("`pipeline.stages_per_rank`: GPipe and 1F1B have one stage on each rank")
        .about(&[keys::PIPELINE_STAGES_PER_RANK, keys::PIPELINE_SCHEDULE])
        .hint("set pipeline.schedule = \"interleaved_1f1b\", or leave `pipeline.stages_per_rank` out")
}

const LOOP: &str = "set framework = \"loop\"";
pub(super) const ONE_EACH: &str = "set pipeline.schedule = \"1f1b\", whose range is wide there";

pub(super) fn all_reasons(job: &JobSpec) -> impl Iterator<Item = Reason> {
    training_reasons(job).into_iter().chain(weight_reasons(job))
}

/// What the loop and the model must be.
fn training_reasons(job: &JobSpec) -> [Reason; 7] {
    let is_plain = job.zero_grad_set_to_none && !job.optimizer_in_backward && !job.optimizer.fuses_backward();
    let computes = matches!(job.precision, Precision::Fp32 | Precision::Bf16 | Precision::AmpBf16);
    [
        (keys::MODEL, !job.model.facts().has_stages, "stages of its type were not measured", ONE_EACH),
        (keys::TASK, job.task != Task::CausalLm || !job.train_mode, "next tokens are what was measured", ONE_EACH),
        (keys::FRAMEWORK, job.framework != Framework::Loop, "no trainer of Hugging Face runs pipelines", LOOP),
        (
            keys::TRANSFORMERS,
            job.transformers != TransformersVersion::DEFAULT,
            "other versions were not measured",
            "leave `transformers` out",
        ),
        (keys::PRECISION, !computes, "fp32, bf16 and amp-bf16 were measured", ONE_EACH),
        (
            keys::GRADIENT_ACCUMULATION_STEPS,
            job.gradient_accumulation_steps > MOST_MICRO_BATCHES,
            "more than 256 micro-batches a step are not run",
            ONE_EACH,
        ),
        (
            keys::OPTIMIZER_IN_BACKWARD,
            !is_plain || job.ema != Ema::default(),
            "schedules accumulate gradients, and averages of weights were not measured",
            "leave it out",
        ),
    ]
}

/// What reads weights or activations otherwise, or was not measured.
fn weight_reasons(job: &JobSpec) -> [Reason; 6] {
    let caches = job.use_cache && !job.turns_cache_off();
    let logits = &job.logits;
    let is_whole = logits.loss == LossKernel::Full && logits.logits_to_keep.is_none() && !logits.keep_outputs;
    [
        (keys::QUANTIZATION, job.quantization.is_some(), "quantized stages were not measured", ONE_EACH),
        (
            keys::USE_LIGER_KERNEL,
            job.liger_kernels || !is_whole || !job.kernels.is_empty(),
            "logits of all positions and the model's own kernels were measured",
            "leave it out",
        ),
        (keys::PADDED, job.padded == Some(true), "rows of one length were measured", "leave it out"),
        (keys::USE_CACHE, caches, "stages hand on no cache", "set use_cache = false"),
        (
            keys::ACTIVATION_OFFLOADING,
            job.activation_offload.is_some() || job.use_reentrant,
            "offloaded activations and the older form of checkpoints were not measured",
            "leave it out",
        ),
        (keys::ATTENTION, job.attention != Attention::Sdpa, "SDPA was measured", "leave `attention` out"),
    ]
}
