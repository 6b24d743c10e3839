//! What is simulated once and stands for more: [`TraceSlice`], what was recorded between two moments, and its users.
//!
//! Equal passes of a training and equal calls of `generate` are copied (`later`), tokens between two that do the same are
//! leapt over (`growth`). Each is tested against the plain run, and kept for what it gains, which `docs/speed.md` says.

mod growth;
mod later;

use std::ops::Range;

use super::counter::Tally;
use super::recorder::Recorder;
use tonnage_alloc::trace::AllocationId;

pub use growth::{Doubles, Growth, Landing, Leap, Token};
pub use later::Copied;

/// A moment of the trace.
pub struct Moment {
    event: usize,
    allocation: AllocationId,
    phase: u32,
    tally: Tally,
}

/// What was recorded between two moments.
pub struct TraceSlice {
    events: Range<usize>,
    allocations: Range<AllocationId>,
    /// The phases it begins and ends in.
    phases: Range<u32>,
    /// What was counted in those before it began, and when it ended.
    tallies: [Tally; 2],
}

impl TraceSlice {
    /// Where one of its allocations stands among them.
    fn place(&self, id: AllocationId) -> AllocationId {
        id.wrapping_sub(self.allocations.start)
    }
}

impl Recorder {
    pub fn moment(&self) -> Moment {
        let trace = self.trace.borrow();
        Moment {
            event: trace.events.len(),
            allocation: trace.allocations.len() as AllocationId,
            phase: self.current_phase(),
            tally: self.counter.tally(),
        }
    }

    /// What was recorded since `moment`.
    pub fn slice_since(&self, moment: &Moment) -> TraceSlice {
        let now = self.moment();
        TraceSlice {
            events: moment.event..now.event,
            allocations: moment.allocation..now.allocation,
            phases: moment.phase..now.phase,
            tallies: [moment.tally, now.tally],
        }
    }

    /// What was counted since `moment`, in this phase, happens `times` more times, which are left out of the trace.
    pub fn count_again(&self, moment: &Moment, times: u64) {
        if self.current_phase() == moment.phase {
            self.counter.repeat_since(&moment.tally, times);
        }
    }
}
