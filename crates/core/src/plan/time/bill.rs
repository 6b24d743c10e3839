//! [`bill_of`]: the time, energy and price of a job on its GPU, with whatever the user measured or pays in place of ours.

use super::{Costs, Measured, Range, Run, StepTime, Time, costs_of, step_time};
use crate::estimate::{EstimateError, SimulatedJob};
use crate::gpu::{Gpu, Price, PriceKind, prices_of};
use crate::job::{JobSpec, Spreading};

/// Steps that a bill is for where the length of the training is not said.
pub const STEPS_OF_A_SAMPLE: u64 = 1000;

/// What a job takes and costs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Bill {
    /// The mean step: measured, scaled from a measured one, or estimated.
    pub step: Time,
    /// The estimate of it, part by part; `None` where the GPU's rates are not known.
    pub estimated: Option<StepTime>,
    /// Steps of the training, or a thousand where nobody says how long it is.
    pub steps: u64,
    /// Whether the length was said.
    pub is_whole: bool,
    /// GPUs that are taken.
    pub gpus: u64,
    /// Time, energy and price of the steps.
    pub costs: Costs,
}

/// How a user's measured step carries over to other jobs and GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Nothing was measured.
    Estimated,
    /// This is the job that was measured.
    Own(f64),
    /// Another job, or another GPU.
    Of(Measured),
}

impl Scale {
    /// What the user says of `job`.
    pub fn own(job: &JobSpec) -> Self {
        job.run.step_seconds.map_or(Self::Estimated, Self::Own)
    }

    /// What that says of others, given the estimate of the job that was measured.
    #[must_use]
    pub fn for_others(self, estimated: Option<&StepTime>) -> Self {
        match (self, estimated) {
            (Self::Own(seconds), Some(step)) => {
                Measured::new(seconds, step.time.seconds).map_or(Self::Estimated, Self::Of)
            }
            (Self::Own(_), None) => Self::Estimated,
            (other, _) => other,
        }
    }

    fn time(self, estimated: Option<&StepTime>) -> Option<Time> {
        match self {
            Self::Own(seconds) => Some(Time { seconds: Range::exactly(seconds), basis: "measured by you".to_owned() }),
            Self::Of(measured) => Some(measured.rescaled(estimated?.time.seconds)),
            Self::Estimated => Some(estimated?.time.clone()),
        }
    }
}

/// The price of an hour of `gpu`: the user's, or the lowest of our list for what is not taken away.
pub fn price_of(job: &JobSpec, gpu: &Gpu) -> Option<Price> {
    let own = job.run.dollars_per_gpu_hour.and_then(Price::own);
    own.or_else(|| prices_of(&gpu.id, PriceKind::OnDemand)?.lowest())
}

/// GPUs that a job takes.
pub fn gpus_taken(job: &JobSpec) -> u64 {
    match job.task.facts().spreading() {
        Spreading::Nodes { nodes, gpus } => gpus.min(nodes).max(1),
        _ => job.parallel.world_size.max(1) + job.task.facts().more_gpus(),
    }
}

/// The bill of `simulated` on `gpu`; `None` where neither a measured step nor the GPU's rates are known.
///
/// # Errors
/// When a second model cannot be simulated.
pub fn bill_of(simulated: &SimulatedJob<'_>, gpu: &Gpu, scale: Scale) -> Result<Option<Bill>, EstimateError> {
    Ok(bill_of_step(simulated.job(), gpu, step_time(simulated, gpu)?, scale))
}

/// The same from the estimate of its step on `gpu`.
pub(in crate::plan) fn bill_of_step(
    job: &JobSpec,
    gpu: &Gpu,
    estimated: Option<StepTime>,
    scale: Scale,
) -> Option<Bill> {
    let step = scale.time(estimated.as_ref())?;
    let gpus = gpus_taken(job);
    let steps = job.run.length.map_or(STEPS_OF_A_SAMPLE, |length| length.steps(job));
    let price = price_of(job, gpu);
    let costs = costs_of(step.seconds, Run { steps, gpus }, gpu.rates.as_ref(), price.as_ref());
    Some(Bill { step, estimated, steps, is_whole: job.run.length.is_some(), gpus, costs })
}
