//! Whether a job fits GPUs that it was not written for; one simulation serves all GPUs whose host code gives the
//! same answers.

use thiserror::Error;

use super::MOST_EVENTS;
use super::replaying::{Replaying, SIMULATION};
use crate::estimate::{Deployment, Estimate, EstimateError, Fit, NO_SIZE, Room, SimulatedJob, outside_bytes};
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
    /// Whether live requests alone said that it does not fit, without a replay: sizes are then the least that they can be.
    pub at_least: bool,
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
    /// The same, and what a replay did one by one of tokens that grow: what a search counts.
    pub effort: u64,
    /// Events of tokens that grow which a replay went through.
    pub replayed: u64,
    /// How many processes a GPU could hold, where they share it.
    pub room: Vec<Room>,
}

impl GpuVerdict {
    /// Whether another batch may fit.
    pub(super) fn leaves_room(&self) -> bool {
        self.lasting_bytes < self.usable_bytes
    }

    /// Whether it runs, tightly or not.
    pub const fn fits(&self) -> bool {
        self.fit.fits()
    }

    /// Whether nothing says that it does not fit.
    pub const fn may_fit(&self) -> bool {
        self.fit.may_fit()
    }
}

/// Why a cell of a table has no verdict.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoVerdict {
    /// Fewer rows fit on no GPU of the table, so that more were not asked for.
    #[error("not estimated: fewer rows fit nowhere")]
    Pruned,
    /// To replay the job for every kind of GPU would have taken too long, and for this one it was not.
    #[error("{0}")]
    NotReplayed(EstimateError),
    /// It needs more than any GPU has.
    #[error("{}", EstimateError::TooLarge)]
    TooLarge,
    /// There is no such job, or it cannot be simulated.
    #[error("{0}")]
    Impossible(String),
}

impl From<EstimateError> for NoVerdict {
    fn from(error: EstimateError) -> Self {
        match error {
            EstimateError::NotReplayed { .. } => Self::NotReplayed(error),
            error if error.is_too_large() => Self::TooLarge,
            error => Self::Impossible(error.to_string()),
        }
    }
}

/// What a table says of a job on a GPU.
pub type Cell = Result<GpuVerdict, NoVerdict>;

/// What is known of a job on a GPU.
type Answer = Result<GpuVerdict, EstimateError>;

/// What is known of a job on several GPUs, in their order, and how many simulations that took.
pub(super) struct Answered {
    pub answers: Vec<Answer>,
    pub simulations: u64,
}

/// `job` on each of `gpus`, in their order. Devices on which the program is the same share a simulation: what is of another
/// size there is noted while it runs.
pub fn verdicts_on(job: &JobSpec, gpus: &[Gpu]) -> Vec<Answer> {
    let jobs = job_by_device(job, gpus);
    let replays = jobs.len() as u64;
    answers_by_device(jobs, replays, gpus, &simulated_verdict)
}

/// The same where so many replays serve one question: see [`SimulatedJob::with_other_devices`]. Where those for all kinds of GPU have more
/// than [`MOST_EVENTS`] events together, a kind whose memory live requests alone far exceed needs none, and once so many were replayed the
/// others get no verdict.
pub(super) fn verdicts_of_replays(replays: u64, job: &JobSpec, gpus: &[Gpu]) -> Answered {
    verdicts_within(MOST_EVENTS, replays, job, gpus)
}

fn verdicts_within(most_events: u64, replays: u64, job: &JobSpec, gpus: &[Gpu]) -> Answered {
    let jobs = job_by_device(job, gpus);
    let replaying = Replaying::new(most_events, jobs.len());
    let ask = |simulated: &SimulatedJob<'_>, gpu: &Gpu| verdict_within(&replaying, simulated, gpu);
    let mut answers: Vec<_> = gpus.iter().map(|_| None).collect();
    answer_within(&replaying, jobs, replays, gpus, (&mut answers, &ask));
    Answered { answers: answers.into_iter().flatten().collect(), simulations: replaying.simulations() }
}

/// From so many events on a job is long on one kind of GPU: rows that are answered at once would need too much memory.
const LONG_ALONE: u64 = MOST_EVENTS / 8;

/// The same of a job whose replays for all kinds of GPU have more events than that; `None` of another.
pub(super) fn verdicts_if_long(replays: u64, job: &JobSpec, gpus: &[Gpu]) -> Option<Vec<Answer>> {
    verdicts_if_longer(MOST_EVENTS, replays, job, gpus)
}

fn verdicts_if_longer(most_events: u64, replays: u64, job: &JobSpec, gpus: &[Gpu]) -> Option<Vec<Answer>> {
    let jobs = job_by_device(job, gpus);
    let replaying = Replaying::new(most_events, jobs.len());
    let (first, others) = jobs.split_first()?;
    let devices: Vec<Device> = others.iter().map(|job| job.gpu.device()).collect();
    let simulated = SimulatedJob::with_other_devices(first, &devices, replays).ok()?;
    // One kind of GPU is answered however long that takes, and its rows still one after another.
    let is_long_alone = others.is_empty() && simulated.events() > LONG_ALONE;
    if !replaying.is_long(simulated.events()) && !is_long_alone {
        return None;
    }
    let replaying = replaying.after(simulated.events(), 1);
    let ask = |simulated: &SimulatedJob<'_>, gpu: &Gpu| verdict_within(&replaying, simulated, gpu);
    let mut answers: Vec<_> = gpus.iter().map(|_| None).collect();
    answer_same_device(gpus, first, &mut answers, |gpu| ask(&simulated, gpu));
    let rest = moved_answers(simulated, others, gpus, (&mut answers, &ask));
    replaying.note_simulation();
    answer_within(&replaying, rest, replays, gpus, (&mut answers, &ask));
    Some(answers.into_iter().flatten().collect())
}

/// The verdict on a GPU, as far as may be replayed.
fn verdict_within(replaying: &Replaying, simulated: &SimulatedJob<'_>, gpu: &Gpu) -> Answer {
    if replaying.is_needed(simulated)
        && let Some(least) = simulated.far_exceeds(gpu)?
    {
        return Ok(exceeded_verdict(simulated, gpu, least));
    }
    replaying.begin(simulated)?;
    simulated_verdict(simulated, gpu)
}

/// Answers for all of `jobs`, as far as may be replayed.
fn answer_within<T>(
    replaying: &Replaying,
    mut jobs: Vec<JobSpec>,
    replays: u64,
    gpus: &[Gpu],
    (answers, ask): (&mut Answers<T>, Ask<'_, T>),
) {
    while let Some(first) = jobs.first() {
        if replaying.is_over() {
            answer_same_device(gpus, first, answers, |_| Err(replaying.refuse()));
            jobs.remove(0);
        } else {
            jobs = same_program_answers(jobs, replays, gpus, (answers, ask));
            replaying.note_simulation();
        }
    }
}

/// The verdict on a GPU that carries the job, as far as may be replayed.
fn carrying_within(
    replaying: &Replaying,
    simulated: &SimulatedJob<'_>,
    gpu: &Gpu,
) -> Result<Option<GpuVerdict>, EstimateError> {
    if simulated.far_exceeds(gpu)?.is_some() {
        return Ok(None);
    }
    replaying.begin(simulated)?;
    Ok(Some(simulated_verdict(simulated, gpu)?).filter(GpuVerdict::may_fit))
}

/// The verdict on a GPU that has less than the live requests alone are.
fn exceeded_verdict(simulated: &SimulatedJob<'_>, gpu: &Gpu, (least, phase): (u64, Phase)) -> GpuVerdict {
    let live = least.saturating_sub(outside_bytes(gpu).low);
    GpuVerdict {
        fit: Fit::DoesNotFit,
        at_least: true,
        total_bytes: least,
        safe_bytes: NO_SIZE,
        usable_bytes: gpu.usable_bytes,
        peak_allocated_bytes: live,
        peak_reserved_bytes: live,
        peak_phase: phase,
        lasting_bytes: simulated.lasting_bytes(),
        events: simulated.events(),
        effort: simulated.effort(),
        replayed: simulated.trace().replayed_grown_events(),
        room: Vec::new(),
    }
}

/// The same of those alone that carry the job, for all that is known: which is less to find out of all others.
///
/// `events` are those of a simulation of the job that was made before; 0 where one of so many `replays` has fewer.
pub(super) fn carrying_verdicts(
    replays: u64,
    events: u64,
    job: &JobSpec,
    gpus: &[Gpu],
) -> Vec<Result<Option<GpuVerdict>, EstimateError>> {
    let jobs = job_by_device(job, gpus);
    let replaying = Replaying::new(MOST_EVENTS, jobs.len()).after(events, SIMULATION);
    let ask = |simulated: &SimulatedJob<'_>, gpu: &Gpu| carrying_within(&replaying, simulated, gpu);
    let mut answers: Vec<_> = gpus.iter().map(|_| None).collect();
    answer_within(&replaying, jobs, replays, gpus, (&mut answers, &ask));
    answers.into_iter().flatten().collect()
}

/// The same of a simulation that noted what `others`, its job on other devices, would allocate instead.
pub(super) fn carrying_verdicts_beside<'a>(
    simulated: SimulatedJob<'a>,
    others: &'a [JobSpec],
    gpus: &[Gpu],
) -> Vec<Result<Option<GpuVerdict>, EstimateError>> {
    let replaying = Replaying::new(MOST_EVENTS, others.len()).after(simulated.events(), 1);
    let ask = |simulated: &SimulatedJob<'_>, gpu: &Gpu| carrying_within(&replaying, simulated, gpu);
    let mut answers: Vec<_> = gpus.iter().map(|_| None).collect();
    let jobs = moved_answers(simulated, others, gpus, (&mut answers, &ask));
    answer_within(&replaying, jobs, 1, gpus, (&mut answers, &ask));
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
type Ask<'a, T> = &'a dyn Fn(&SimulatedJob<'_>, &Gpu) -> Result<T, EstimateError>;
/// What was answered of each GPU so far.
type Answers<T> = [Option<Result<T, EstimateError>>];

fn answers_by_device<T>(
    mut jobs: Vec<JobSpec>,
    replays: u64,
    gpus: &[Gpu],
    ask: Ask<'_, T>,
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
    (answers, ask): (&mut Answers<T>, Ask<'_, T>),
) -> Vec<JobSpec> {
    let Some((first, others)) = jobs.split_first() else { return Vec::new() };
    let devices: Vec<Device> = others.iter().map(|job| job.gpu.device()).collect();
    let simulated = match SimulatedJob::with_other_devices(first, &devices, replays) {
        Ok(simulated) => simulated,
        Err(error) => {
            // What is more than any GPU has is so on all of them.
            let (refused, others) = jobs.split_at(if error.is_too_large() { jobs.len() } else { 1 });
            refused.iter().for_each(|job| answer_same_device(gpus, job, answers, |_| Err(error.clone())));
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
    (answers, ask): (&mut Answers<T>, Ask<'_, T>),
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

/// The same if nothing says that it does not fit there.
pub(super) fn carrying_verdict(simulated: &SimulatedJob<'_>, gpu: &Gpu) -> Result<Option<GpuVerdict>, EstimateError> {
    carrying_within(&Replaying::new(u64::MAX, 1), simulated, gpu)
}

fn verdict_of(deployment: Deployment, estimate: &Estimate, simulated: &SimulatedJob<'_>) -> GpuVerdict {
    let fullest = deployment.fullest();
    GpuVerdict {
        fit: deployment.fit(),
        at_least: false,
        total_bytes: fullest.map_or(estimate.total_bytes, |gpu| gpu.total_bytes),
        safe_bytes: fullest.map_or(estimate.safe_bytes, |gpu| gpu.safe_bytes),
        usable_bytes: estimate.usable_bytes,
        peak_allocated_bytes: estimate.peak_allocated_bytes,
        peak_reserved_bytes: estimate.peak_reserved_bytes,
        peak_phase: estimate.peak_phase,
        lasting_bytes: simulated.lasting_bytes(),
        events: simulated.events(),
        effort: simulated.effort(),
        replayed: simulated.trace().replayed_grown_events(),
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
                let exceeds = simulated.far_exceeds(&job.gpu).unwrap().is_some();
                assert!(!exceeds || !verdict.fits(), "{case} on {}", row.id);
                assert_eq!(carrying_verdict(&simulated, &job.gpu).unwrap(), Some(verdict).filter(GpuVerdict::may_fit));
                far += u32::from(exceeds);
            }
        }
        assert!(far > 10, "{far}: nothing is told without a replay");
    }

    /// Of a job with many events a kind of GPU that has far too little is counted, one that may carry it replayed as long as events are
    /// left, and nothing is said of the others.
    #[test]
    fn replays_of_many_kinds_end_with_what_they_were_given() {
        let case = json!({"micro_batch": 8, "model": {"family": "gpt2", "n_layer": 24, "n_embd": 2048, "n_head": 32}});
        let job = from_case(&case).unwrap();
        let gpus: Vec<Gpu> = catalog().iter().map(|row| row.gpu()).collect();
        let whole = verdicts_within(u64::MAX, 1, &job, &gpus).answers;
        let events = whole[0].as_ref().unwrap().events;
        let bounded = verdicts_within(3 * events, 1, &job, &gpus).answers;
        let (mut counted, mut replayed, mut silent) = (0, 0, 0);
        for (whole, bounded) in whole.iter().zip(&bounded) {
            let whole = whole.as_ref().unwrap();
            match bounded {
                Ok(bounded) if bounded.at_least => {
                    assert!(!whole.fits() && bounded.total_bytes <= whole.total_bytes, "{bounded:?}");
                    assert!(bounded.total_bytes > bounded.usable_bytes && bounded.peak_phase == whole.peak_phase);
                    assert!(bounded.peak_allocated_bytes <= whole.peak_allocated_bytes);
                    counted += 1;
                }
                Ok(bounded) => {
                    assert_eq!(bounded, whole);
                    replayed += 1;
                }
                Err(error) => {
                    assert!(matches!(error, EstimateError::NotReplayed { .. }), "{error}");
                    silent += 1;
                }
            }
        }
        assert!(counted > 10 && replayed > 3 && silent > 3, "{counted}, {replayed}, {silent}");
        // Who asks for long jobs alone gets the same of those that it is told.
        let kinds = job_by_device(&job, &gpus).len() as u64;
        assert_eq!(verdicts_if_longer(kinds * events, 1, &job, &gpus), None);
        let long = verdicts_if_longer(kinds * events - 1, 1, &job, &gpus).unwrap();
        let told = whole.iter().zip(&long).filter(|(_, long)| long.as_ref().is_ok_and(|long| !long.at_least));
        assert!(told.clone().count() > 3 && told.clone().all(|(whole, long)| whole == long));
    }

    /// What is more than any GPU has is told once, of all of them.
    #[test]
    fn what_is_too_large_is_so_on_every_gpu() {
        let job = from_case(&json!({"micro_batch": 300_000, "model": {"family": "gpt2", "n_layer": 1}})).unwrap();
        let gpus: Vec<Gpu> = ["h100", "t4", "l4"].map(|name| Gpu::parse(name).unwrap()).into();
        let answers = verdicts_on(&job, &gpus);
        assert_eq!(answers.len(), 3);
        for answer in answers {
            let error = answer.unwrap_err();
            assert!(error.is_too_large(), "{error}");
            assert_eq!(NoVerdict::from(error), NoVerdict::TooLarge);
        }
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
