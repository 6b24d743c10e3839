//! Whether a job fits GPUs that it was not written for; one simulation serves all GPUs whose host code gives the
//! same answers.

use crate::estimate::{Deployment, Estimate, EstimateError, Fit, Room, SimulatedJob};
use crate::gpu::{Device, Gpu};
use crate::job::JobSpec;
use crate::small_sort::SmallSort;
use crate::trace::Phase;

/// Whether a job fits a GPU, and the bytes that say so.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GpuVerdict {
    /// Whether the fullest GPU can carry what it must.
    pub fit: Fit,
    /// What that is, contexts included.
    pub total_bytes: u64,
    /// What surely is enough: with what is not known, and a margin.
    pub safe_bytes: u64,
    /// What the GPU has.
    pub usable_bytes: u64,
    /// Of one process: the peak of allocated bytes.
    pub peak_allocated_bytes: u64,
    /// Of one process: the peak of reserved bytes.
    pub peak_reserved_bytes: u64,
    /// The phase of the peak.
    pub peak_phase: Phase,
    /// Of one process: weights and optimizer states, which no other batch makes less.
    pub lasting_bytes: u64,
    /// How many events were simulated for it.
    pub events: u64,
    /// How many processes a GPU could hold, where they share it.
    pub room: Vec<Room>,
}

impl GpuVerdict {
    /// Whether another batch may fit.
    pub(super) fn leaves_room(&self) -> bool {
        self.lasting_bytes < self.usable_bytes
    }

    /// Whether it runs, tightly or not.
    pub fn fits(&self) -> bool {
        self.fit != Fit::DoesNotFit
    }
}

/// What is known of a job on a GPU.
type Answer = Result<GpuVerdict, EstimateError>;

/// `job` on each of `gpus`, in their order. Devices on which the program is the same share a simulation: what is of another
/// size there is noted while it runs.
pub fn verdicts_on(job: &JobSpec, gpus: &[Gpu]) -> Vec<Answer> {
    let jobs = job_by_device(job, gpus);
    let replays = jobs.len() as u64;
    verdicts_by_device(jobs, replays, gpus)
}

/// The same where so many replays serve one question: see [`SimulatedJob::with_other_devices`].
pub(super) fn verdicts_of_replays(replays: u64, job: &JobSpec, gpus: &[Gpu]) -> Vec<Answer> {
    verdicts_by_device(job_by_device(job, gpus), replays, gpus)
}

/// `job` on each kind of device that `gpus` are.
fn job_by_device(job: &JobSpec, gpus: &[Gpu]) -> Vec<JobSpec> {
    let mut jobs: Vec<JobSpec> = Vec::new();
    for gpu in gpus {
        if jobs.iter().all(|other| other.gpu.device() != gpu.device()) {
            jobs.push(job_on(job, gpu));
        }
    }
    jobs
}

fn verdicts_by_device(mut jobs: Vec<JobSpec>, replays: u64, gpus: &[Gpu]) -> Vec<Answer> {
    let mut answers: Vec<Option<Answer>> = gpus.iter().map(|_| None).collect();
    while !jobs.is_empty() {
        jobs = same_program_verdicts(jobs, replays, gpus, &mut answers);
    }
    answers.into_iter().flatten().collect()
}

/// Answers for the first of `jobs`, a job on devices of several kinds, and for all others that run the same program; returns
/// the rest.
fn same_program_verdicts(
    jobs: Vec<JobSpec>,
    replays: u64,
    gpus: &[Gpu],
    answers: &mut [Option<Answer>],
) -> Vec<JobSpec> {
    let Some((first, others)) = jobs.split_first() else { return Vec::new() };
    let devices: Vec<Device> = others.iter().map(|job| job.gpu.device()).collect();
    let mut simulated = match SimulatedJob::with_other_devices(first, &devices, replays) {
        Ok(simulated) => simulated,
        Err(error) => {
            answer_same_device(gpus, first, answers, |_| Err(error.clone()));
            return others.to_vec();
        }
    };
    answer_same_device(gpus, first, answers, |gpu| simulated_verdict(&simulated, gpu));
    let (mut same, diverged): (Vec<_>, Vec<_>) = others.iter().enumerate().partition(|(at, _)| simulated.runs_on(*at));
    // Devices whose sizes are equal follow one another: one replay serves them.
    same.small_sort_by(|(at, _), (other, _)| simulated.sizes_on(*at).cmp(simulated.sizes_on(*other)));
    for (at, job) in same {
        simulated = simulated.moved(at, job);
        answer_same_device(gpus, job, answers, |gpu| simulated_verdict(&simulated, gpu));
    }
    diverged.into_iter().map(|(_, job)| job.clone()).collect()
}

/// Puts verdicts at the places of the GPUs of the job's device.
fn answer_same_device(gpus: &[Gpu], job: &JobSpec, answers: &mut [Option<Answer>], verdict: impl Fn(&Gpu) -> Answer) {
    let same = gpus.iter().zip(answers).filter(|(gpu, _)| gpu.device() == job.gpu.device());
    same.for_each(|(gpu, answer)| *answer = Some(verdict(gpu)));
}

/// Whether `job` fits `gpu`.
///
/// # Errors
/// When the job cannot be simulated.
pub fn verdict_on(job: &JobSpec, gpu: &Gpu) -> Result<GpuVerdict, EstimateError> {
    simulated_verdict(&SimulatedJob::new(&job_on(job, gpu))?, gpu)
}

fn job_on(job: &JobSpec, gpu: &Gpu) -> JobSpec {
    JobSpec { gpu: gpu.clone(), ..job.clone() }
}

/// A simulated job on `gpu`.
pub(super) fn simulated_verdict(simulated: &SimulatedJob<'_>, gpu: &Gpu) -> Result<GpuVerdict, EstimateError> {
    let estimate = simulated.brief_on(gpu)?;
    let deployment = Deployment::new(simulated, estimate.clone())?;
    Ok(verdict_of(deployment, &estimate, simulated))
}

fn verdict_of(deployment: Deployment, estimate: &Estimate, simulated: &SimulatedJob<'_>) -> GpuVerdict {
    let fullest = deployment.fullest();
    GpuVerdict {
        fit: deployment.fit(),
        total_bytes: fullest.map_or(estimate.total_bytes, |gpu| gpu.total_bytes),
        safe_bytes: fullest.map_or(estimate.safe_bytes, |gpu| gpu.safe_bytes),
        usable_bytes: estimate.usable_bytes,
        peak_allocated_bytes: estimate.peak_allocated_bytes,
        peak_reserved_bytes: estimate.peak_reserved_bytes,
        peak_phase: estimate.peak_phase,
        lasting_bytes: simulated.lasting_bytes(),
        events: simulated.events(),
        room: deployment.room,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::from_case;

    #[test]
    fn one_simulation_serves_equal_devices() {
        let job = from_case(&json!({"micro_batch": 2, "model": {"family": "gpt2", "n_layer": 2}})).unwrap();
        let gpus = ["h100", "h200", "t4"].map(|name| Gpu::parse(name).unwrap());
        let together = verdicts_on(&job, &gpus);
        let apart: Vec<_> = gpus.iter().map(|gpu| verdict_on(&job, gpu)).collect();
        assert_eq!(together, apart);
        let usable: Vec<_> = together.iter().map(|answer| answer.as_ref().unwrap().usable_bytes).collect();
        assert_eq!(usable, gpus.map(|gpu| gpu.usable_bytes));
    }
}
