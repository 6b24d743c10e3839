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
    answers_by_device(jobs, replays, gpus, simulated_verdict)
}

/// The same where so many replays serve one question: see [`SimulatedJob::with_other_devices`].
pub(super) fn verdicts_of_replays(replays: u64, job: &JobSpec, gpus: &[Gpu]) -> Vec<Answer> {
    answers_by_device(job_by_device(job, gpus), replays, gpus, simulated_verdict)
}

/// The same of those alone that carry the job, which is less to find out of all others.
pub(super) fn carrying_verdicts(
    replays: u64,
    job: &JobSpec,
    gpus: &[Gpu],
) -> Vec<Result<Option<GpuVerdict>, EstimateError>> {
    answers_by_device(job_by_device(job, gpus), replays, gpus, carrying_verdict)
}

/// The same of a simulation that noted what `others`, its job on other devices, would allocate instead.
pub(super) fn carrying_verdicts_beside<'a>(
    simulated: SimulatedJob<'a>,
    others: &'a [JobSpec],
    gpus: &[Gpu],
) -> Vec<Result<Option<GpuVerdict>, EstimateError>> {
    let mut answers: Vec<_> = gpus.iter().map(|_| None).collect();
    let mut jobs = moved_answers(simulated, others, gpus, (&mut answers, carrying_verdict));
    while !jobs.is_empty() {
        jobs = same_program_answers(jobs, 1, gpus, (&mut answers, carrying_verdict));
    }
    answers.into_iter().flatten().collect()
}

/// `job` on each kind of device that `gpus` are.
pub(super) fn job_by_device(job: &JobSpec, gpus: &[Gpu]) -> Vec<JobSpec> {
    let mut jobs: Vec<JobSpec> = Vec::new();
    for gpu in gpus {
        if jobs.iter().all(|other| other.gpu.device() != gpu.device()) {
            jobs.push(job_on(job, gpu));
        }
    }
    jobs
}

/// Asks a simulated job about a GPU of its device.
type Ask<T> = fn(&SimulatedJob<'_>, &Gpu) -> Result<T, EstimateError>;
/// What was answered of each GPU so far.
type Answers<T> = [Option<Result<T, EstimateError>>];

fn answers_by_device<T>(
    mut jobs: Vec<JobSpec>,
    replays: u64,
    gpus: &[Gpu],
    ask: Ask<T>,
) -> Vec<Result<T, EstimateError>> {
    let mut answers: Vec<_> = gpus.iter().map(|_| None).collect();
    while !jobs.is_empty() {
        jobs = same_program_answers(jobs, replays, gpus, (&mut answers, ask));
    }
    answers.into_iter().flatten().collect()
}

/// Answers for the first of `jobs`, a job on devices of several kinds, and for all others that run the same program; returns
/// the rest.
fn same_program_answers<T>(
    jobs: Vec<JobSpec>,
    replays: u64,
    gpus: &[Gpu],
    (answers, ask): (&mut Answers<T>, Ask<T>),
) -> Vec<JobSpec> {
    let Some((first, others)) = jobs.split_first() else { return Vec::new() };
    let devices: Vec<Device> = others.iter().map(|job| job.gpu.device()).collect();
    let simulated = match SimulatedJob::with_other_devices(first, &devices, replays) {
        Ok(simulated) => simulated,
        Err(error) => {
            answer_same_device(gpus, first, answers, |_| Err(error.clone()));
            return others.to_vec();
        }
    };
    answer_same_device(gpus, first, answers, |gpu| ask(&simulated, gpu));
    moved_answers(simulated, others, gpus, (answers, ask))
}

/// Answers for those of `others`, the job on the other devices of the simulation, that run the same program; returns the rest.
fn moved_answers<'a, T>(
    mut simulated: SimulatedJob<'a>,
    others: &'a [JobSpec],
    gpus: &[Gpu],
    (answers, ask): (&mut Answers<T>, Ask<T>),
) -> Vec<JobSpec> {
    let is_asked = |job: &JobSpec| gpus.iter().any(|gpu| gpu.device() == job.gpu.device());
    let asked = others.iter().enumerate().filter(|(_, job)| is_asked(job));
    let (mut same, diverged): (Vec<_>, Vec<_>) = asked.partition(|(at, _)| simulated.runs_on(*at));
    // Devices whose sizes are equal follow one another: one replay serves them.
    same.small_sort_by(|(at, _), (other, _)| simulated.sizes_on(*at).cmp(simulated.sizes_on(*other)));
    for (at, job) in same {
        simulated = simulated.moved(at, job);
        answer_same_device(gpus, job, answers, |gpu| ask(&simulated, gpu));
    }
    diverged.into_iter().map(|(_, job)| job.clone()).collect()
}

/// Puts answers at the places of the GPUs of the job's device.
fn answer_same_device<T>(
    gpus: &[Gpu],
    job: &JobSpec,
    answers: &mut Answers<T>,
    ask: impl Fn(&Gpu) -> Result<T, EstimateError>,
) {
    let same = gpus.iter().zip(answers).filter(|(gpu, _)| gpu.device() == job.gpu.device());
    same.for_each(|(gpu, answer)| *answer = Some(ask(gpu)));
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

/// The same if it runs there, tightly or not.
pub(super) fn carrying_verdict(simulated: &SimulatedJob<'_>, gpu: &Gpu) -> Result<Option<GpuVerdict>, EstimateError> {
    if simulated.far_exceeds(gpu)? {
        return Ok(None);
    }
    Ok(Some(simulated_verdict(simulated, gpu)?).filter(GpuVerdict::fits))
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
    use crate::gpu::catalog;
    use crate::job::from_case;

    /// Who far exceeds a GPU is told so without a replay, and the replay would have said the same.
    #[test]
    fn what_far_exceeds_a_gpu_does_not_fit_it() {
        let cases = [
            json!({"micro_batch": 2, "model": {"family": "gpt2", "n_layer": 2}}),
            json!({"micro_batch": 8, "model": {"family": "gpt2", "n_layer": 24, "n_embd": 2048, "n_head": 32}}),
            json!({"micro_batch": 2, "seq_len": 4096, "precision": "bf16", "model": {"family": "gpt2", "n_layer": 12, "n_positions": 4096}}),
        ];
        let mut far = 0;
        for case in cases {
            let job = from_case(&case).unwrap();
            for row in catalog() {
                let job = job_on(&job, &row.gpu());
                let simulated = SimulatedJob::new(&job).unwrap();
                let verdict = simulated_verdict(&simulated, &job.gpu).unwrap();
                let exceeds = simulated.far_exceeds(&job.gpu).unwrap();
                assert!(!exceeds || !verdict.fits(), "{case} on {}", row.id);
                assert_eq!(carrying_verdict(&simulated, &job.gpu).unwrap(), Some(verdict).filter(GpuVerdict::fits));
                far += u32::from(exceeds);
            }
        }
        assert!(far > 10, "{far}: nothing is told without a replay");
    }

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
