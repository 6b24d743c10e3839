//! [`appraise`]: whether a job fits a GPU and what it costs there, from one simulation.

use super::fit::{GpuVerdict, simulated_verdict};
use super::time::{Bill, Range, Scale, StepTime, bill_of, bill_of_step, step_time};
use crate::estimate::{EstimateError, SimulatedJob};
use crate::gpu::{DEFAULT_GPU, Gpu, find_gpu};
use crate::job::{JobSpec, RunSpec};
use crate::small_sort::SmallSort;
use crate::units::Seconds;
use crate::work::Work;

/// A job on a GPU, in bytes, hours and dollars.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Appraisal {
    /// Whether it fits.
    pub verdict: GpuVerdict,
    /// What it costs; `None` where the GPU's rates are not known.
    pub bill: Option<Bill>,
    /// The step that others are compared with: on this GPU, or on the default one where its rates are not known.
    pub pace: Option<StepTime>,
}

/// The job on another GPU, whose price is not the one that the user gave for its own.
pub(super) fn moved_to(job: JobSpec, gpu: &Gpu) -> JobSpec {
    let dollars_per_gpu_hour = job.run.dollars_per_gpu_hour.filter(|_| job.gpu.id == gpu.id);
    JobSpec { gpu: gpu.clone(), run: RunSpec { dollars_per_gpu_hour, ..job.run }, ..job }
}

/// A search appraises about so many jobs.
const APPRAISED: u64 = 64;
/// Of more tokens each is replayed with less, so that all take seconds; of shorter completions no byte is left out.
const LONG_COMPLETION: u64 = 2048;

/// How many replays the appraisal of a job is one of: see [`SimulatedJob::with_other_devices`].
fn replays_beside(job: &JobSpec) -> u64 {
    let tokens = job.task.facts().completion_len().unwrap_or(0).max(job.max_new_tokens);
    if tokens > LONG_COMPLETION { APPRAISED } else { 1 }
}

/// `job` on `gpu`.
///
/// # Errors
/// When the job cannot be simulated.
pub fn appraise(job: &JobSpec, gpu: &Gpu, scale: Scale) -> Result<Appraisal, EstimateError> {
    let job = JobSpec { gpu: gpu.clone(), ..job.clone() };
    appraise_simulated(&SimulatedJob::with_other_devices(&job, &[], replays_beside(&job))?, scale)
}

/// `job` on its own GPU, and what it computes and moves.
pub(super) fn appraise_with_work(job: &JobSpec, scale: Scale) -> Result<(Appraisal, Work), EstimateError> {
    let replays = replays_beside(job);
    let simulated = SimulatedJob::with_other_devices(job, &[], replays)?;
    // Of very long completions one of many replays runs fewer tokens.
    let work = if replays > 1 { SimulatedJob::new(job)?.work().clone() } else { simulated.work().clone() };
    Ok((appraise_simulated(&simulated, scale)?, work))
}

impl Appraisal {
    /// The same of `job`, which was appraised on its own GPU by its estimate alone, with what a measured step says.
    pub(super) fn rescaled(&self, job: &JobSpec, scale: Scale) -> Self {
        let estimated = self.bill.as_ref().and_then(|bill| bill.estimated.clone());
        Self { bill: bill_of_step(job, &job.gpu, estimated, scale), ..self.clone() }
    }
}

fn appraise_simulated(simulated: &SimulatedJob<'_>, scale: Scale) -> Result<Appraisal, EstimateError> {
    let gpu = &simulated.job().gpu;
    let verdict = simulated_verdict(simulated, gpu)?;
    let bill = bill_of(simulated, gpu, scale)?;
    let pace = match bill.as_ref().and_then(|bill| bill.estimated.clone()) {
        Some(step) => Some(step),
        None => stand_in().map(|rates| step_time(simulated, &rates)).transpose()?.flatten(),
    };
    Ok(Appraisal { verdict, bill, pace })
}

/// Whose rates stand in for those that are not known: ratios of times depend little on them.
fn stand_in() -> Option<Gpu> {
    find_gpu(DEFAULT_GPU).ok().map(|row| row.gpu())
}

/// How much longer a step takes than before, and how that was found.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Slowdown {
    /// The factor on the time of a step; below 1 it is faster.
    pub factor: Range,
    /// How it was found.
    pub basis: String,
}

impl Slowdown {
    /// The factor of a change that costs no time.
    pub fn none() -> Self {
        Self { factor: Range::exactly(1.0), basis: "the same operations and bytes".to_owned() }
    }

    /// Of `after` against `before`, both on `gpu`.
    pub fn between(before: &Appraisal, after: &Appraisal, gpu: &Gpu) -> Option<Self> {
        let (from, to) = (before.pace.as_ref()?, after.pace.as_ref()?);
        let ratio = |from: f64, to: f64| if from > 0.0 { to / from } else { 1.0 };
        let (from_time, to_time) = (from.time.seconds, to.time.seconds);
        let typical = ratio(from_time.typical, to_time.typical);
        let ends = [ratio(from_time.low, to_time.low), ratio(from_time.high, to_time.high)];
        let factor = Range {
            low: ends.into_iter().fold(typical, f64::min),
            typical,
            high: ends.into_iter().fold(typical, f64::max),
        };
        Some(Self { factor, basis: slowdown_basis(from, to, gpu) })
    }
}

/// The parts of a step that change most, and the operations.
fn slowdown_basis(from: &StepTime, to: &StepTime, gpu: &Gpu) -> String {
    let seconds = |step: &StepTime, name: &str| {
        let named = step.parts.iter().filter(|part| part.name == name);
        named.fold(0.0, |sum, part| sum + part.seconds.typical)
    };
    let mut names: Vec<&'static str> = from.parts.iter().chain(&to.parts).map(|part| part.name).collect();
    names.sort_unstable();
    names.dedup();
    let change = |name: &&'static str| (seconds(to, name) - seconds(from, name)).abs();
    names.small_sort_by(|a, b| change(b).total_cmp(&change(a)));
    let whole = from.time.seconds.typical.max(f64::MIN_POSITIVE);
    let shown = names.iter().take(2).filter(|name| change(name) / whole >= 0.005);
    let parts: Vec<String> = shown
        .map(|name| match (seconds(from, name), seconds(to, name)) {
            (0.0, new) => format!("{name} {} more", Seconds(new)),
            (old, new) => format!("{name} {} -> {}", Seconds(old), Seconds(new)),
        })
        .collect();
    let flops = to.flops as f64 / (from.flops.max(1)) as f64;
    let operations = match (flops - 1.0).abs() < 0.005 {
        true => "the same operations".to_owned(),
        false => format!("{flops:.2} x the operations"),
    };
    let borrowed = if gpu.rates.is_none() { format!(", at the rates of {DEFAULT_GPU}") } else { String::new() };
    match parts.is_empty() {
        true => format!("{operations}; no phase changes{borrowed}"),
        false => format!("{operations}; {}{borrowed}", parts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{JobSource, keys};

    fn job(completion_len: u64) -> JobSpec {
        let source = JobSource::model("qwen2.5-0.5b").set(keys::TASK, "grpo").set(keys::COMPLETION_LEN, completion_len);
        source.resolve(&[]).unwrap().job
    }

    #[test]
    fn an_appraisal_of_long_completions_is_one_of_many_and_of_short_ones_as_an_estimate() {
        assert_eq!([512, 2048, 2049, 10_000].map(|tokens| replays_beside(&job(tokens))), [1, 1, APPRAISED, APPRAISED]);
        // Of short ones no byte is left out.
        let short = job(512);
        let appraised = appraise(&short, &short.gpu, Scale::Estimated).unwrap().verdict;
        let (allocated, reserved) = SimulatedJob::new(&short).unwrap().replay_peaks().unwrap();
        assert_eq!((appraised.peak_allocated_bytes, appraised.peak_reserved_bytes), (allocated, reserved));
    }

    /// Fewer tokens are replayed; the peak of allocated bytes moves by what a few of them keep, and the verdict is as careful.
    #[test]
    fn what_an_appraisal_of_long_completions_leaves_out_moves_the_peak_little() {
        let long = job(12_000);
        let alone = SimulatedJob::new(&long).unwrap();
        let one_of_many = SimulatedJob::with_other_devices(&long, &[], replays_beside(&long)).unwrap();
        assert!(one_of_many.trace().replayed_stride() > alone.trace().replayed_stride(), "no more is left out");
        let appraised = appraise(&long, &long.gpu, Scale::Estimated).unwrap().verdict;
        let estimate = alone.estimate().unwrap();
        let (few, all) = (appraised.peak_allocated_bytes, estimate.peak_allocated_bytes);
        assert!(few.abs_diff(all) <= all / 1000, "{few}, not {all}");
        assert!(
            appraised.safe_bytes >= estimate.peak_reserved_bytes,
            "{} of {}",
            appraised.safe_bytes,
            estimate.peak_reserved_bytes
        );
    }
}
