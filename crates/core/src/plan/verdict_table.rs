//! [`VerdictTable`]: a job with other batches on several GPUs, each distinct job simulated once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::MOST_EVENTS;
use super::batch::Batch;
use super::fit::{Cell, GpuVerdict, NoVerdict, verdicts_if_long, verdicts_of_replays};
use super::replaying::SIMULATION;
use crate::estimate::EstimateError;
use crate::gpu::{Device, Gpu};
use crate::job::keys::STEPS;
use crate::job::{JobError, JobSource, JobSpec, Origin, Override};

/// A longer job is searched by its first steps, of which there are so many: the state appears in the first, and from the
/// second on steps ask for the same.
const FIRST_STEPS: u32 = 3;
/// A search for the largest batch asks for about so many.
const SEARCHED: u64 = 4;
/// A job that is more than any GPU has was simulated until that was seen, and counts as so many events.
pub(super) const REFUSED: u64 = MOST_EVENTS / 64;

/// How many simulations with a replay take as long as so many whose traces so many devices replay together.
const fn passes_of(simulations: u64, devices: usize) -> u64 {
    let passes = (SIMULATION * simulations + devices as u64) / (SIMULATION + 1);
    if passes == 0 { 1 } else { passes }
}

/// What is known of a job by batch, and by device: workspaces and kernels' scratch go by compute capability and
/// multiprocessors.
pub struct VerdictTable<'a> {
    job: Cow<'a, JobSpec>,
    gpus: &'a [Gpu],
    source: Cow<'a, JobSource>,
    devices: Vec<Device>,
    /// How many batches and variants are about to be asked for.
    lists: u64,
    known: Mutex<HashMap<(Batch, Device), Arc<Answers>>>,
    first_steps: OnceLock<Option<Box<Self>>>,
    spent: AtomicU64,
    /// The most simulations that a batch took: kinds of GPUs that run other programs share none.
    simulations: AtomicU64,
}

/// An answer for every GPU of a device, in their order; why there is no such job is the same for all.
type Answers = Result<Vec<Cell>, JobError>;

impl<'a> VerdictTable<'a> {
    /// Nothing known yet of `job`, which `source` came to.
    pub fn new(job: &'a JobSpec, gpus: &'a [Gpu], source: &'a JobSource) -> Self {
        Self::of(Cow::Borrowed(job), gpus, Cow::Borrowed(source))
    }

    fn of(job: Cow<'a, JobSpec>, gpus: &'a [Gpu], source: Cow<'a, JobSource>) -> Self {
        let mut devices: Vec<Device> = Vec::new();
        for gpu in gpus {
            if !devices.contains(&gpu.device()) {
                devices.push(gpu.device());
            }
        }
        let (known, first_steps, spent, simulations) = Default::default();
        Self { job, gpus, source, devices, lists: 1 + SEARCHED, known, first_steps, spent, simulations }
    }

    /// For a table of so many variants: of very long generations each is replayed with less.
    #[must_use]
    pub fn for_variants(self, variants: usize) -> Self {
        Self { lists: (variants as u64).saturating_add(SEARCHED), ..self }
    }

    /// The first steps of a longer job alone: all of it needs no less.
    pub(super) fn of_first_steps(&self) -> Option<&Self> {
        let first_steps = || {
            let is_longer = self.job.steps > 2 * FIRST_STEPS;
            let cut = Override::new(STEPS, FIRST_STEPS, Origin::Rows);
            let source = is_longer.then(|| JobSource::clone(&self.source).with(&[cut]))?;
            let job = source.resolve(&[]).ok()?.job;
            let first = Self::of(Cow::Owned(job), self.gpus, Cow::Owned(source));
            Some(Box::new(Self { lists: self.lists, ..first }))
        };
        self.first_steps.get_or_init(first_steps).as_deref()
    }

    /// The job as it was handed over.
    pub fn job(&self) -> &JobSpec {
        &self.job
    }

    /// In the order of the table's columns.
    pub fn gpus(&self) -> &[Gpu] {
        self.gpus
    }

    /// The places of the GPUs of these devices.
    pub(super) fn device_places(&self, devices: &[Device]) -> Vec<usize> {
        let of = |at: &usize| devices.contains(&self.gpus[*at].device());
        (0..self.gpus.len()).filter(of).collect()
    }

    /// Kinds of GPUs: those of a kind share all but their memory.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Estimates `batch` on all GPUs of `device`, if that was not done before.
    pub fn learn_answers(&self, batch: Batch, device: Device) -> Arc<Answers> {
        self.learn_all(batch, &[device]);
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(batch, device)).map_or_else(|| Arc::new(Ok(Vec::new())), Arc::clone)
    }

    /// Estimates `batch` on all GPUs of `devices`, of which those that run the same program share a simulation.
    pub fn learn_all(&self, batch: Batch, devices: &[Device]) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown: Vec<Device> =
            devices.iter().filter(|device| !known.contains_key(&(batch, **device))).copied().collect();
        drop(known);
        if unknown.is_empty() {
            return;
        }
        let of = |gpu: &&Gpu| unknown.contains(&gpu.device());
        let gpus: Vec<Gpu> = self.gpus.iter().filter(of).cloned().collect();
        let answers = self.estimate_batch(batch, &gpus);
        self.note_answers(batch, unknown, (&gpus, answers));
    }

    /// Estimates `batch` on all GPUs where that is long: parts of a table that are answered at once would simulate it each, and hold
    /// as many graphs in memory. Whether it was.
    pub(super) fn learn_if_long(&self, batch: Batch) -> bool {
        let job = self.job_with(batch).ok();
        let answers = job.and_then(|job| verdicts_if_long(self.replays(), &job, self.gpus));
        let is_long = answers.is_some();
        if let Some(answers) = answers {
            let answers = Ok(answers.into_iter().map(|answer| answer.map_err(NoVerdict::from)).collect());
            self.note_answers(batch, self.devices.clone(), (self.gpus, answers));
        }
        is_long
    }

    /// Notes what was answered of GPUs of these devices.
    pub(super) fn note_answers(&self, batch: Batch, unknown: Vec<Device>, (gpus, answers): (&[Gpu], Answers)) {
        let effort = |cell: &Cell| match cell {
            Ok(verdict) => verdict.effort,
            Err(NoVerdict::TooLarge) => REFUSED,
            Err(_) => 0,
        };
        let events = answers.iter().flatten().map(effort).max().unwrap_or(0);
        self.spent.fetch_add(events.saturating_mul(self.passes_of(unknown.len())), Ordering::Relaxed);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for device in unknown {
            let own = |found: &Vec<_>| -> Vec<_> {
                let placed = gpus.iter().zip(found).filter(|(gpu, _)| gpu.device() == device);
                placed.map(|(_, answer): (_, &Cell)| answer.clone()).collect()
            };
            known.entry((batch, device)).or_insert_with(|| Arc::new(answers.as_ref().map(own).map_err(Clone::clone)));
        }
    }

    fn estimate_batch(&self, batch: Batch, gpus: &[Gpu]) -> Answers {
        let job = self.job_with(batch)?;
        let answered = verdicts_of_replays(self.replays(), &job, gpus);
        self.simulations.fetch_max(answered.simulations, Ordering::Relaxed);
        Ok(answered.answers.into_iter().map(|answer| answer.map_err(NoVerdict::from)).collect())
    }

    /// How many simulations with a replay take as long as the job on so many devices, of which as many share a simulation as did so far.
    pub(super) fn passes_of(&self, devices: usize) -> u64 {
        let simulations = self.simulations.load(Ordering::Relaxed).clamp(1, devices.max(1) as u64);
        passes_of(simulations, devices)
    }

    fn job_with(&self, batch: Batch) -> Result<JobSpec, JobError> {
        // The job's own batch is not set again: a swarm's node chooses its rows itself.
        match batch == Batch::of(&self.job) {
            true => Ok(JobSpec::clone(&self.job)),
            false => Ok(self.source.resolve(&batch.overrides(&self.job, &Origin::Rows))?.job),
        }
    }

    /// However many GPUs are asked about at once, a verdict is the same.
    fn replays(&self) -> u64 {
        self.lists.saturating_mul(self.devices.len() as u64)
    }

    /// A variant of the job on some of the GPUs, as one of the lists that are asked for.
    pub(super) fn verdicts_of(&self, job: &JobSpec, gpus: &[Gpu]) -> Vec<Result<GpuVerdict, EstimateError>> {
        verdicts_of_replays(self.replays(), job, gpus).answers
    }

    /// `batch` on the GPU at `index`.
    ///
    /// # Errors
    /// Why there is no such job.
    pub fn verdict_on(&self, batch: Batch, index: usize) -> Cell {
        let device = self.gpus[index].device();
        let place = self.gpus[..index].iter().filter(|gpu| gpu.device() == device).count();
        match self.learn_answers(batch, device).as_ref() {
            Ok(answers) => answers[place].clone(),
            Err(error) => Err(NoVerdict::Impossible(error.problem.clone())),
        }
    }

    /// Whether `batch` was estimated on the GPU at `index` before.
    pub fn is_known(&self, batch: Batch, index: usize) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains_key(&(batch, self.gpus[index].device()))
    }

    /// Events that were simulated, those of its first steps among them, of other devices as [`passes_of`](Self::passes_of) says.
    pub(super) fn spent(&self) -> u64 {
        let of_first_steps = self.first_steps.get().and_then(Option::as_deref).map_or(0, Self::spent);
        self.spent.load(Ordering::Relaxed).saturating_add(of_first_steps)
    }

    /// How many distinct jobs were estimated.
    pub fn estimates(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where addresses decide what is sent to the host, every kind of GPU is simulated for itself.
    #[test]
    fn kinds_that_share_no_simulation_are_counted_apart() {
        let gpus = ["h100", "a100-80", "l4", "t4"].map(|name| Gpu::parse(name).unwrap());
        let spent = |offloading: &str| {
            let source = JobSource::model("gpt2").set("model.n_layer", 2).set("activation_offloading", offloading);
            let job = source.resolve(&[]).unwrap().job;
            let known = VerdictTable::new(&job, &gpus, &source);
            let batch = Batch::of(&job);
            known.learn_all(batch, known.devices());
            let effort = known.verdict_on(batch, 0).unwrap().effort;
            (known.spent() / effort, known.passes_of(4))
        };
        assert_eq!(spent("none"), (2, 2));
        assert_eq!(spent("streams"), (4, 4));
    }
}
