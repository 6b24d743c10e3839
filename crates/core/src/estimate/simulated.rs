//! [`SimulatedJob`]: a job with its trace, ready for questions.

mod counted;

use std::cell::{Cell, OnceCell};

use super::caveat::Direction;
use super::error::EstimateError;
use super::figures::NO_SIZE;
use super::other_devices::OtherDevices;
use super::padding::Padding;
use super::timeline::{self, Timeline};
use super::verdict::{
    Capacity, Least, OomMoment, Verdict, count_retries, failure_moment, no_room_to_wake, run_within, safety_margin,
};
use super::{AtPeak, Caveat, Engine, Estimate, activations, breakdown, caveat, outside_bytes};
use crate::alloc::{Peaks, counted_peaks};
use crate::gpu::{Device, Gpu};
use crate::host::HostMemory;
use crate::job::{JobSpec, Strategy};
use crate::step::{self, Repetition, SimulateError, Simulation};
use crate::trace::{Phase, PhaseKind, Trace};
use crate::work::Work;

/// How much an estimate says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Full,
    /// Without what takes another pass over the events.
    Brief,
}

/// A job that was run on abstract tensors.
pub struct SimulatedJob<'a> {
    job: &'a JobSpec,
    trace: Trace,
    other_devices: OtherDevices,
    parameter_count: u64,
    trainable_count: u64,
    managed_bytes: u64,
    host: HostMemory,
    repetition: Option<Repetition>,
    work: Work,
    peaks: OnceCell<Option<Peaks>>,
    lasting: OnceCell<u64>,
    live: OnceCell<(u64, Option<Phase>)>,
    padding: Padding,
    least: Cell<Option<Least>>,
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

    /// The same, noting what `others` would allocate instead: see [`moved`](Self::moved). It is one of so many `replays` that serve
    /// one question: of very long generations each leaves out more, so that all of them take no longer than one.
    ///
    /// # Errors
    /// When the model cannot be built.
    pub fn with_other_devices(job: &'a JobSpec, others: &[Device], replays: u64) -> Result<Self, EstimateError> {
        let mut simulated = Self::of(job, step::simulate_with_other_devices(job, others, replays)?);
        simulated.trace.bound_replay(replays);
        Ok(Self { padding: Padding::new(others, replays), ..simulated })
    }

    /// Whether the other device at this place runs the same program.
    pub fn runs_on(&self, at: usize) -> bool {
        self.other_devices.runs_on(at)
    }

    /// What depends on the device, in bytes, on the other device at this place; nothing where it runs another program.
    pub fn sizes_on(&self, at: usize) -> &[u64] {
        self.other_devices.sizes_on(at)
    }

    /// The simulation as if `job`, which is this one on the other device at this place, had been simulated.
    #[must_use]
    pub fn moved<'b>(mut self, at: usize, job: &'b JobSpec) -> SimulatedJob<'b> {
        let is_same = self.other_devices.resize_trace(&mut self.trace, at);
        // More than is simulated is so on every device.
        let is_too_large = matches!(self.peaks.get(), Some(None));
        let (peaks, least, live) = match is_same || is_too_large {
            true => (self.peaks, self.least, self.live),
            false => Default::default(),
        };
        SimulatedJob { job, peaks, padding: self.padding.moved(at), least, live, ..self }
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
        activations::mark_activations(&mut trace);
        // A second simulation, of padded rows, may be beside it.
        trace.events.shrink_to_fit();
        trace.allocations.shrink_to_fit();
        let other_devices = OtherDevices::new(&trace, simulation.other_sizes);
        let (parameter_count, trainable_count) = (simulation.parameter_count, simulation.trainable_count);
        Self {
            job,
            trace,
            other_devices,
            parameter_count,
            trainable_count,
            managed_bytes: simulation.managed_bytes,
            host: simulation.host,
            repetition: simulation.repetition,
            work: simulation.work,
            peaks: OnceCell::new(),
            lasting: OnceCell::new(),
            live: OnceCell::new(),
            padding: Padding::new(&[], 1),
            least: Cell::default(),
        }
    }

    /// As it was handed over.
    pub const fn job(&self) -> &JobSpec {
        self.job
    }

    /// Every allocation and free.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Weights and optimizer states, which are of one size on all devices that run the program.
    pub(crate) fn lasting_bytes(&self) -> u64 {
        *self.lasting.get_or_init(|| self.trace.lasting_bytes())
    }

    /// How many events were simulated, those of padded rows among them where they were asked for.
    pub(crate) fn events(&self) -> u64 {
        (self.trace.events.len() + self.padding.events()) as u64
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
        self.estimate_of(self.job, Detail::Full)
    }

    /// What the job needs on another GPU, without what is alive at its peak, the least it could run on, where it fails and how
    /// often it retries: each of these takes further passes over the events. Where host code gives other answers there the job is simulated anew.
    ///
    /// # Errors
    /// When no GPU could ever hold it.
    pub fn brief_on(&self, gpu: &Gpu) -> Result<Estimate, EstimateError> {
        let job = JobSpec { gpu: gpu.clone(), ..self.job.clone() };
        if gpu.device() == self.job.gpu.device() {
            self.estimate_of(&job, Detail::Brief)
        } else {
            SimulatedJob::new(&job)?.estimate_of(&job, Detail::Brief)
        }
    }

    fn peaks(&self) -> Result<&Peaks, EstimateError> {
        let (trace, config) = (&self.trace, &self.job.allocator);
        let peaks = self.peaks.get_or_init(|| counted_peaks(trace, config));
        peaks.as_ref().ok_or(EstimateError::TooLarge)
    }

    fn estimate_of(&self, job: &JobSpec, detail: Detail) -> Result<Estimate, EstimateError> {
        let peaks = self.peaks()?;
        let outside = outside_bytes(&job.gpu);
        let engine = Engine::of_job(job);
        if let Some(engine) = &engine {
            let adapters = if job.lora.is_some() { self.trainable_count } else { 0 };
            engine.check_engine(job, self.parameter_count - adapters, &self.trace).map_err(SimulateError::from)?;
        }
        let held = engine.as_ref().map_or(peaks.reserved, |engine| engine.with_reserved(peaks));
        let total = held + outside.high;
        let margin_bytes = safety_margin(peaks.reserved);
        let mut estimate = Estimate {
            peak_allocated_bytes: peaks.allocated,
            peak_reserved_bytes: peaks.reserved,
            rounded512_peak_bytes: peaks.rounded512,
            peak_phase: peaks.peak_phase().unwrap_or(Phase { kind: PhaseKind::Load, step: 0 }),
            reserved_by_stream: peaks.reserved_by_stream.clone(),
            after_load_bytes: peaks.after_load,
            steady_state_bytes: peaks.steady_state,
            total_bytes: total,
            range: (held + outside.low, total),
            margin_bytes,
            safe_bytes: total + margin_bytes,
            least_bytes: None,
            usable_bytes: job.gpu.usable_bytes,
            verdict: Verdict::Fits,
            at_peak: match detail {
                Detail::Full => breakdown::at_peak(&self.trace, peaks.place, peaks.allocated),
                Detail::Brief => AtPeak::default(),
            },
            peak_event: peaks.place.event,
            events: self.trace.events.len(),
            parameter_count: self.parameter_count,
            trainable_count: self.trainable_count,
            caveats: Vec::new(),
            peak_per_phase: peaks.phases.clone(),
            outside,
            host: self.host.clone(),
            engine,
        };
        let caveats = self.caveats(job, peaks.reserved)?.into_iter();
        caveats.chain(self.padding.caveat(self.job, peaks.reserved)).for_each(|caveat| estimate.add_caveat(caveat));
        estimate.verdict = self.verdict(job, peaks, &mut estimate, detail);
        Ok(estimate)
    }

    /// What is not known of the job where it reserves so many bytes, but for rows of unequal length, which only add to it.
    fn caveats(&self, job: &JobSpec, reserved: u64) -> Result<Vec<Caveat>, EstimateError> {
        let mut caveats = caveat::all_caveats(job, &self.trace, reserved, self.whole_model_count()?, self.repetition);
        caveats.extend(caveat::paged_states(self.managed_bytes));
        caveats.extend(caveat::offloaded(job, reserved));
        Ok(caveats)
    }

    /// Parameters of the model before it was split over ranks, without adapters.
    fn whole_model_count(&self) -> Result<u64, EstimateError> {
        let adapters = if self.job.lora.is_some() { self.trainable_count } else { 0 };
        match self.job.parallel.strategy {
            Strategy::TensorParallel { .. } | Strategy::PipelineParallel { .. } => {
                Ok(step::parameter_count(&self.job.model)?)
            }
            _ => Ok(self.parameter_count - adapters),
        }
    }

    /// Judges the job on its GPU; notes the least it could run on where that decides.
    fn verdict(&self, job: &JobSpec, peaks: &Peaks, estimate: &mut Estimate, detail: Detail) -> Verdict {
        let usable = job.gpu.usable_bytes;
        let fraction = job.allocator.per_process_memory_fraction.map(|share| (usable as f64 * share) as u64);
        let allowed = fraction.unwrap_or(usable);
        if estimate.safe_bytes <= usable && fraction.is_none_or(|most| peaks.reserved + estimate.margin_bytes <= most) {
            return Verdict::Fits;
        }
        let unknown = (estimate.total_bytes - estimate.outside.high + estimate.outside.low) - estimate.range.0;
        if let Some(engine) = &estimate.engine
            && let Some(peak) = engine.wakes_at(peaks)
            && peak.reserved + engine.awake_bytes + estimate.outside.low > usable.saturating_add(unknown)
        {
            return Verdict::DoesNotFit(Some(Box::new(no_room_to_wake(&self.trace, peak, engine.awake_bytes))));
        }
        let asleep = estimate.engine.as_ref().map_or(0, |engine| engine.asleep_bytes);
        // What the job may take less, it leaves to what is counted.
        let saved = estimate.caveats.iter().filter(|caveat| caveat.direction == Direction::Less);
        let saved = saved.map(|caveat| caveat.widens_bytes).fold(0, u64::saturating_add).min(unknown);
        let capacity = Capacity {
            most: usable
                .saturating_add(unknown)
                .saturating_sub(estimate.outside.low + asleep)
                .min(allowed.saturating_add(saved)),
            expected: usable.saturating_sub(estimate.outside.high + asleep).min(allowed),
        };
        if capacity.expected >= peaks.reserved {
            return Verdict::Tight { retries: Some(0) };
        }
        if estimate.safe_bytes == NO_SIZE && capacity.most >= peaks.reserved {
            return Verdict::Tight { retries: None };
        }
        let config = &self.job.allocator;
        if detail == Detail::Brief {
            let is_enough = capacity.most >= peaks.rounded512 && self.is_enough(peaks, capacity.most);
            return if is_enough { Verdict::Tight { retries: None } } else { Verdict::DoesNotFit(None) };
        }
        // Of a long trace one replay decides, and the least is not searched for.
        if self.trace.is_long() {
            return match run_within(config, &self.trace, capacity.most) {
                Ok(retries) => {
                    let expected = run_within(config, &self.trace, capacity.expected);
                    Verdict::Tight { retries: Some(expected.unwrap_or(retries)) }
                }
                Err(moment) => Verdict::DoesNotFit(Some(moment)),
            };
        }
        // Nothing goes through on less than the live requests.
        let least = if capacity.most < peaks.rounded512 {
            peaks.rounded512
        } else {
            let least = self.with_least(peaks, |least| least.find_bytes(config, &self.trace));
            estimate.least_bytes = Some(least + estimate.outside.low + asleep);
            least
        };
        if capacity.most < least {
            return Verdict::DoesNotFit(failure_moment(config, &self.trace, capacity.most, least));
        }
        Verdict::Tight { retries: count_retries(config, &self.trace, capacity.expected, least) }
    }

    /// Asks for the least capacity, and keeps what was found out.
    fn with_least<T>(&self, peaks: &Peaks, ask: impl FnOnce(&mut Least) -> T) -> T {
        let mut least = self.least.get().unwrap_or_else(|| Least::between(peaks.rounded512, peaks.reserved));
        let answer = ask(&mut least);
        self.least.set(Some(least));
        answer
    }

    fn is_enough(&self, peaks: &Peaks, capacity: u64) -> bool {
        self.with_least(peaks, |least| least.is_within(capacity, &self.job.allocator, &self.trace))
    }

    /// The smallest device on which the job goes through, if only by flushing the allocator's cache: nothing outside the
    /// allocator is counted.
    ///
    /// # Errors
    /// When no GPU could ever hold the job.
    pub fn least_reserved(&self) -> Result<u64, EstimateError> {
        let bytes = |least: &mut Least| least.find_bytes(&self.job.allocator, &self.trace);
        Ok(self.with_least(self.peaks()?, bytes))
    }

    /// Whether a device of `capacity` bytes is not smaller than [`least_reserved`](Self::least_reserved), which takes fewer
    /// replays to say.
    ///
    /// # Errors
    /// When no GPU could ever hold the job.
    pub fn goes_through(&self, capacity: u64) -> Result<bool, EstimateError> {
        Ok(self.is_enough(self.peaks()?, capacity))
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
        timeline::sampled_timeline(&self.trace, &self.job.allocator, columns).ok_or(EstimateError::TooLarge)
    }

    /// Runs the job on a device with `capacity` bytes for the allocator: how often the cache is flushed.
    ///
    /// # Errors
    /// With the moment at which memory runs out.
    pub fn run_within(&self, capacity: u64) -> Result<u64, Box<OomMoment>> {
        run_within(&self.job.allocator, &self.trace, capacity)
    }
}
