//! [`SimulatedJob`]: a job with its trace, ready for questions.

use std::cell::OnceCell;

use thiserror::Error;

use super::peaks::Peaks;
use super::timeline::{self, Timeline};
use super::verdict::{OomMoment, run_within, verdict};
use super::{Engine, Estimate, activations, breakdown, caveat, outside, peaks};
use crate::gpu::Gpu;
use crate::spec::{FieldError, JobSpec, SpecError};
use crate::step::{self, Repetition, SimulateError, Simulation};
use crate::trace::{Phase, PhaseKind, Trace};
use crate::work::Work;

/// Why a job has no estimate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EstimateError {
    /// The model cannot be built.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// The job does not fit into any GPU's addresses.
    #[error("the job needs more than 16 TiB")]
    TooLarge,
}

impl EstimateError {
    /// The field of the model's config that is at fault, if one is.
    pub const fn field(&self) -> Option<&FieldError> {
        match self {
            Self::Simulate(SimulateError::Field(error)) => Some(error),
            _ => None,
        }
    }

    /// What of the job PyTorch refuses, if that is the error.
    pub const fn job(&self) -> Option<&SpecError> {
        match self {
            Self::Simulate(SimulateError::Job(error)) => Some(error),
            _ => None,
        }
    }

    /// What to do next.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Simulate(SimulateError::Job(error)) => error.hint.as_deref(),
            Self::Simulate(_) => None,
            Self::TooLarge => Some("lower `micro_batch_size` or `seq_len`"),
        }
    }
}

/// A job that was run on abstract tensors.
pub struct SimulatedJob<'a> {
    job: &'a JobSpec,
    trace: Trace,
    parameter_count: u64,
    trainable_count: u64,
    repetition: Option<Repetition>,
    work: Work,
    peaks: OnceCell<Option<Peaks>>,
}

/// What `job` needs.
///
/// # Errors
/// When the model cannot be built or no GPU could ever hold the job.
pub fn estimate(job: &JobSpec) -> Result<Estimate, EstimateError> {
    SimulatedJob::new(job)?.estimate()
}

impl<'a> SimulatedJob<'a> {
    /// Simulates `job`.
    ///
    /// # Errors
    /// When the model cannot be built.
    pub fn new(job: &'a JobSpec) -> Result<Self, EstimateError> {
        Ok(Self::of(job, step::simulate(job)?))
    }

    /// Simulates the judge of `job` on a GPU of its own; `None` where it has none there.
    ///
    /// # Errors
    /// When the model cannot be built.
    pub fn of_judge(job: &'a JobSpec) -> Result<Option<Self>, EstimateError> {
        Ok(step::simulate_judge(job)?.map(|simulation| Self::of(job, simulation)))
    }

    fn of(job: &'a JobSpec, simulation: Simulation) -> Self {
        let mut trace = simulation.trace;
        activations::mark(&mut trace);
        let (parameter_count, trainable_count) = (simulation.parameter_count, simulation.trainable_count);
        Self {
            job,
            trace,
            parameter_count,
            trainable_count,
            repetition: simulation.repetition,
            work: simulation.work,
            peaks: OnceCell::new(),
        }
    }

    /// The job.
    pub const fn job(&self) -> &JobSpec {
        self.job
    }

    /// Every allocation and free.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// What it computes and moves.
    pub const fn work(&self) -> &Work {
        &self.work
    }

    /// Parameters that are trained.
    pub const fn trainable_count(&self) -> u64 {
        self.trainable_count
    }

    /// Parameters of the model, tied ones once.
    pub const fn parameter_count(&self) -> u64 {
        self.parameter_count
    }

    /// What the job needs.
    ///
    /// # Errors
    /// When no GPU could ever hold it.
    pub fn estimate(&self) -> Result<Estimate, EstimateError> {
        self.estimate_of(self.job)
    }

    /// What the job needs on another GPU. Where host code gives other answers there it is simulated anew.
    ///
    /// # Errors
    /// When no GPU could ever hold it.
    pub fn estimate_on(&self, gpu: &Gpu) -> Result<Estimate, EstimateError> {
        let job = JobSpec { gpu: gpu.clone(), ..self.job.clone() };
        if gpu.device() == self.job.gpu.device() { self.estimate_of(&job) } else { estimate(&job) }
    }

    fn peaks(&self) -> Result<&Peaks, EstimateError> {
        let peaks = self.peaks.get_or_init(|| peaks::peaks(&self.trace, &self.job.allocator));
        peaks.as_ref().ok_or(EstimateError::TooLarge)
    }

    fn estimate_of(&self, job: &JobSpec) -> Result<Estimate, EstimateError> {
        let peaks = self.peaks()?;
        let outside = outside(&job.gpu);
        let engine = Engine::of(job);
        if let Some(engine) = &engine {
            let adapters = if job.lora.is_some() { self.trainable_count } else { 0 };
            engine.check(job, self.parameter_count - adapters, &self.trace).map_err(SimulateError::from)?;
        }
        let held = engine.as_ref().map_or(peaks.reserved, |engine| engine.with_reserved(peaks));
        let total = held + outside.high;
        let mut estimate = Estimate {
            peak_allocated_bytes: peaks.allocated,
            peak_reserved_bytes: peaks.reserved,
            rounded512_peak_bytes: peaks.rounded512,
            peak_phase: peaks.phase().unwrap_or(Phase { kind: PhaseKind::Load, step: 0 }),
            reserved_by_stream: peaks.reserved_by_stream.clone(),
            after_load_bytes: peaks.after_load,
            steady_state_bytes: peaks.steady_state,
            total_bytes: total,
            range: (held + outside.low, total),
            usable_bytes: job.gpu.usable_bytes,
            verdict: verdict(job, &self.trace, peaks, engine.as_ref(), outside.high),
            at_peak: breakdown::at_peak(&self.trace, peaks.event, peaks.allocated),
            peak_event: peaks.event,
            events: self.trace.events.len(),
            parameter_count: self.parameter_count,
            trainable_count: self.trainable_count,
            caveats: Vec::new(),
            peak_per_phase: peaks.phases.clone(),
            outside,
            engine,
        };
        caveat::caveats(job, &self.trace, peaks.reserved, self.repetition)
            .into_iter()
            .for_each(|caveat| estimate.add_caveat(caveat));
        Ok(estimate)
    }

    /// Peak allocated and peak reserved bytes alone, the cheapest question.
    ///
    /// # Errors
    /// When no GPU could ever hold the job.
    pub fn replay_peaks(&self) -> Result<(u64, u64), EstimateError> {
        let peaks = self.peaks()?;
        Ok((peaks.allocated, peaks.reserved))
    }

    /// How the bytes rise and fall, in at most `columns` points.
    ///
    /// # Errors
    /// When no GPU could ever hold the job.
    pub fn timeline(&self, columns: usize) -> Result<Timeline, EstimateError> {
        timeline::timeline(&self.trace, &self.job.allocator, columns).ok_or(EstimateError::TooLarge)
    }

    /// Runs the job on a device with `capacity` bytes for the allocator: how often the cache is flushed.
    ///
    /// # Errors
    /// With the moment at which memory runs out.
    pub fn run_within(&self, capacity: u64) -> Result<u64, Box<OomMoment>> {
        run_within(&self.job.allocator, &self.trace, capacity)
    }
}
