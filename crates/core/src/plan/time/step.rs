//! [`step_time`]: the mean optimizer step of a job on all its GPUs: its process's phases, a second model elsewhere, what
//! crosses links, and what a pipeline waits.

use super::assumption::assumed_range;
use super::{Bound, PhaseTime, Range, Speed, Time, communication_of};
use crate::estimate::{EstimateError, SimulatedJob};
use crate::gpu::Gpu;
use crate::job::{GrpoSpec, JobSpec, JudgePlace, Rollout, Strategy};
use crate::trace::PhaseKind;
use crate::work::Work;

/// The mean of so many steps, where the length of the training is not said.
const STEPS: u64 = 1000;

/// A part of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What it is: a phase (`forward`), `judge on its own GPU`, `communication`.
    pub name: &'static str,
    /// Of one optimizer step.
    pub seconds: Range,
    /// What decides how long it takes, of phases.
    pub bound: Option<Bound>,
}

/// The mean step of a job.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepTime {
    /// All of it.
    pub time: Time,
    /// Its parts, which add up.
    pub parts: Vec<Part>,
    /// Operations of one rank's step.
    pub flops: u64,
    /// What is not in it, in words.
    pub notes: Vec<String>,
}

/// The mean step of `simulated` on `gpu`, whose host code must be the simulated one's; `None` where the GPU's rates are not
/// known.
///
/// # Errors
/// When a second model cannot be simulated.
pub fn step_time(simulated: &SimulatedJob<'_>, gpu: &Gpu) -> Result<Option<StepTime>, EstimateError> {
    let job = simulated.job();
    let Some(speed) = Speed::new(gpu, job.run.allow_tf32) else { return Ok(None) };
    // Of GPUs that carry unlike numbers of nodes, the fullest sets the pace.
    let speed = speed.shared(job.task.facts().processes_per_gpu(), job.task.facts().lease());
    let steps = job.run.length.map_or(STEPS, |length| length.steps(job));
    let mut step = StepTime {
        time: Time { seconds: Range::default(), basis: speed.basis() },
        parts: step_parts(&speed, simulated.work(), steps),
        flops: (simulated.work().flops_of_steps(steps) / steps as f64).round() as u64,
        notes: Vec::new(),
    };
    if let Some(grpo) = job.task.grpo() {
        step.add_judge(job, grpo, &speed, steps)?;
        step.add_engine(job, grpo, &speed, steps)?;
    }
    step.add_host_link(simulated.work(), job, steps);
    step.add_links(simulated, &speed);
    step.add_pipeline(job);
    step.time.seconds = step.parts.iter().fold(Range::default(), |sum, part| sum.plus(part.seconds));
    Ok(Some(step))
}

/// The phases of the mean step; what takes no time is left out.
fn step_parts(speed: &Speed, work: &Work, steps: u64) -> Vec<Part> {
    let part = |phase: PhaseTime| Part { name: phase.phase.name(), seconds: phase.seconds, bound: Some(phase.bound) };
    speed.phase_times(work, steps).into_iter().map(part).filter(|part| part.seconds.high > 0.0).collect()
}

/// The judge of a job as if it were alone on a GPU.
fn judge_apart(job: &JobSpec, grpo: &GrpoSpec) -> JobSpec {
    let judge = grpo.judge.clone().map(|judge| crate::job::JudgeSpec { place: JudgePlace::OtherGpu, ..judge });
    JobSpec { task: GrpoSpec { judge, rollout: Rollout::Generate, ..grpo.clone() }.into(), ..job.clone() }
}

/// Generation batches of a mean step.
fn batches_per_step(job: &JobSpec, grpo: &GrpoSpec) -> f64 {
    job.gradient_accumulation_steps as f64 / grpo.steps_per_generation.saturating_mul(grpo.num_iterations).max(1) as f64
}

impl StepTime {
    fn add_part(&mut self, name: &'static str, seconds: Range) {
        if seconds.high > 0.0 {
            self.parts.push(Part { name, seconds, bound: None });
        }
    }

    /// A judge elsewhere keeps the trainer waiting; one that is offloaded crosses the host's link twice a batch.
    fn add_judge(&mut self, job: &JobSpec, grpo: &GrpoSpec, speed: &Speed, steps: u64) -> Result<(), EstimateError> {
        let Some(judge) = &grpo.judge else { return Ok(()) };
        let batches = batches_per_step(job, grpo);
        match judge.place {
            JudgePlace::SameGpu => {}
            JudgePlace::Cpu => self.notes.push("how long the judge takes on the host is not known".to_owned()),
            JudgePlace::OtherGpu => {
                if let Some(judge) = SimulatedJob::of_judge(&judge_apart(job, grpo))? {
                    let seconds = speed.step(judge.work(), steps).seconds.scaled(batches);
                    self.add_part("judge on its own GPU", seconds);
                }
            }
            JudgePlace::Offload => {
                if let Some(judge) = SimulatedJob::of_judge(&judge_apart(job, grpo))? {
                    let bytes = judge.estimate()?.after_load_bytes as f64 * 2.0 * batches;
                    self.add_part("judge to and from the host", over_host_link(bytes));
                }
            }
        }
        Ok(())
    }

    /// vLLM runs CUDA graphs, so its generation is taken as the policy's own without the launches.
    fn add_engine(&mut self, job: &JobSpec, grpo: &GrpoSpec, speed: &Speed, steps: u64) -> Result<(), EstimateError> {
        let Rollout::Vllm { sleep_mode, .. } = grpo.rollout else { return Ok(()) };
        let own = GrpoSpec { rollout: Rollout::Generate, judge: None, ..grpo.clone() };
        let own = JobSpec { task: own.into(), ..job.clone() };
        let simulated = SimulatedJob::new(&own)?;
        let mut work = simulated.work().clone();
        work.phases.retain(|phase| phase.phase.kind == PhaseKind::Generate);
        work.phases.iter_mut().for_each(|phase| phase.amount.launches = 0);
        self.add_part("vLLM's generation", speed.step(&work, steps).seconds);
        self.notes.push("vLLM's generation is taken as the policy's own generate without its launches".to_owned());
        if sleep_mode {
            let copy = simulated.parameter_count().saturating_mul(2) as f64 * batches_per_step(job, grpo);
            self.add_part("weights to the woken engine", over_host_link(copy));
        }
        Ok(())
    }

    /// What is offloaded crosses the host's link beside the kernels, as far as it hides behind them.
    fn add_host_link(&mut self, work: &Work, job: &JobSpec, steps: u64) {
        let bytes: u64 = work.mean_of_steps(steps).iter().map(|(_, amount)| amount.link_bytes).sum();
        self.add_part(
            "to and from the host",
            over_host_link(bytes as f64).times(assumed_range("exposed_communication")),
        );
        if job.parallel.steps_on_host() {
            self.notes.push("how long the optimizer's step takes on the host is not known".to_owned());
        }
    }

    fn add_links(&mut self, simulated: &SimulatedJob<'_>, speed: &Speed) {
        let job = simulated.job();
        let sent = communication_of(job, simulated.parameter_count(), simulated.trainable_count());
        match sent.and_then(|sent| sent.seconds_per_step(speed.rates())) {
            Some(seconds) => self.add_part("communication", seconds),
            None => self.notes.push("what ranks send each other is not reckoned in".to_owned()),
        }
    }

    /// A pipeline of `p` ranks and `m` passes runs `m + p - 1` passes' time (GPipe; 1F1B has the same bubble), with `v` stages on each rank
    /// a `v`-th of the `p - 1` (Narayanan et al. 2021, section 2.2).
    fn add_pipeline(&mut self, job: &JobSpec) {
        let Strategy::PipelineParallel { stages, .. } = job.parallel.strategy else { return };
        let ranks = job.parallel.place_in_pipeline().0.max(1);
        let passes = (job.gradient_accumulation_steps.max(1) * (stages / ranks).max(1)) as f64;
        let busy = self.parts.iter().fold(Range::default(), |sum, part| sum.plus(part.seconds));
        self.add_part("pipeline bubble", busy.scaled((ranks - 1) as f64 / passes));
    }
}

fn over_host_link(bytes: f64) -> Range {
    let Range { low, typical, high } = assumed_range("host_link");
    Range { low: bytes / (high * 1e9), typical: bytes / (typical * 1e9), high: bytes / (low * 1e9) }
}
