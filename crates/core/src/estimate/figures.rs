//! [`Estimate`]: all figures of a job.

use super::breakdown::AtPeak;
use super::caveat::{Caveat, Direction};
use super::engine::Engine;
use super::outside::Outside;
use super::verdict::Verdict;
use crate::alloc::PhasePeak;
use crate::host::HostMemory;
use crate::trace::Phase;

/// The safe bound of a job that surely fits nowhere; sums of it saturate.
pub const NO_SIZE: u64 = u64::MAX;

/// A safe bound as it is shown: none where no size surely is enough.
pub fn shown_bound(safe_bytes: u64) -> Option<u64> {
    (safe_bytes != NO_SIZE).then_some(safe_bytes)
}

/// What a job needs. Names are those of the reference measurements; all sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Estimate {
    /// `torch.cuda.max_memory_allocated()` over the whole job.
    pub peak_allocated_bytes: u64,
    /// `torch.cuda.max_memory_reserved()` over the whole job, on a GPU with room to spare.
    pub peak_reserved_bytes: u64,
    /// Peak of the live requests, each rounded up to 512 bytes and nothing else.
    pub rounded512_peak_bytes: u64,
    /// The phase in which the allocated bytes are highest, the first of several.
    pub peak_phase: Phase,
    /// The peaks of every phase, in the order in which the phases end for the first time.
    pub peak_per_phase: Vec<PhasePeak>,
    /// Reserved when the job ends for each CUDA stream, the main one first: side streams have memory of their own.
    pub reserved_by_stream: Vec<u64>,
    /// Allocated after loading.
    pub after_load_bytes: u64,
    /// Allocated after the last step.
    pub steady_state_bytes: u64,
    /// The CUDA context.
    pub outside: Outside,
    /// What offloading keeps on the host, in one process; nothing of it is in the total.
    pub host: HostMemory,
    /// An engine that generates in the trainer's process, outside what it reserves.
    pub engine: Option<Engine>,
    /// The most that is reserved and that an engine holds at one time, and the context at its highest.
    pub total_bytes: u64,
    /// The least and the most that the total may be.
    pub range: (u64, u64),
    /// Room beyond what is known of the job; see [`safety_margin`](super::safety_margin).
    pub margin_bytes: u64,
    /// The most that the total may be, and the margin: the job fits a GPU that has as much; `NO_SIZE` where something is
    /// left out that no allowance covers.
    pub safe_bytes: u64,
    /// The smallest GPU on which it could run by flushing the allocator's cache, its context at the lowest; `None` where
    /// the answer did not depend on it.
    pub least_bytes: Option<u64>,
    /// What the GPU has.
    pub usable_bytes: u64,
    /// Whether it fits.
    pub verdict: Verdict,
    /// What is alive at the peak.
    pub at_peak: AtPeak,
    /// Index of the event of the peak.
    pub peak_event: usize,
    /// Allocations and frees simulated.
    pub events: usize,
    /// Parameters, tied ones once, adapters included.
    pub parameter_count: u64,
    /// Parameters that are trained.
    pub trainable_count: u64,
    /// What the figures leave open.
    pub caveats: Vec<Caveat>,
}

impl Estimate {
    /// Usable bytes less the total; negative when there are too few.
    pub fn headroom_bytes(&self) -> i64 {
        i64::try_from(self.usable_bytes).unwrap_or(i64::MAX) - i64::try_from(self.total_bytes).unwrap_or(i64::MAX)
    }

    /// Reserved at the peak but not allocated: the allocator's cache and its fragments.
    pub fn unused_reserved_bytes(&self) -> u64 {
        self.peak_reserved_bytes - self.peak_allocated_bytes
    }

    /// What the engine holds when the total is reached.
    pub fn engine_bytes(&self) -> Option<u64> {
        self.engine.as_ref().map(|_| self.total_bytes - self.outside.high - self.reserved_at_total())
    }

    /// What is reserved when the total is reached.
    pub fn reserved_at_total(&self) -> u64 {
        let Some(engine) = &self.engine else { return self.peak_reserved_bytes };
        let held = self.total_bytes - self.outside.high;
        let reaches = |peak: &&PhasePeak| peak.reserved + engine.bytes_during(peak.phase.kind) == held;
        self.peak_per_phase.iter().find(reaches).map_or(self.peak_reserved_bytes, |peak| peak.reserved)
    }

    /// Adds a caveat. What is not known may be more, or more or less; a job that no longer
    /// surely fits is tight.
    pub fn add_caveat(&mut self, caveat: Caveat) {
        if caveat.direction != Direction::More {
            self.range.0 = self.range.0.saturating_sub(caveat.widens_bytes);
        }
        let more = if caveat.direction == Direction::Less { 0 } else { caveat.widens_bytes };
        self.range.1 = self.range.1.saturating_add(more);
        self.safe_bytes = if caveat.open { NO_SIZE } else { self.safe_bytes.saturating_add(more) };
        if self.verdict == Verdict::Fits && self.safe_bytes > self.usable_bytes {
            self.verdict = Verdict::Tight { retries: Some(0) };
        }
        self.caveats.push(caveat);
    }
}
