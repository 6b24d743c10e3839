//! [`TraceSlice`]: what was recorded between two moments, to be copied where the same happens again instead of being run.
//!
//! Three uses: a layer of a decoding pass stands for the layers like it ([`Renaming`]), a pass or a call of `generate` for
//! later ones of the job ([`Copied`]), tokens for those between them (`growth`). Each is tested against the plain run.

mod later;
mod renamed;

use std::ops::Range;

use super::counter::Tally;
use super::recorder::Recorder;
use crate::trace::AllocationId;

pub(crate) use later::Copied;
pub(crate) use renamed::Renaming;

/// A moment of the trace.
pub(crate) struct Moment {
    pub(super) event: usize,
    pub(super) allocation: AllocationId,
    phase: u32,
    tally: Tally,
}

/// What was recorded between two moments.
pub(crate) struct TraceSlice {
    pub(super) events: Range<usize>,
    pub(super) allocations: Range<AllocationId>,
    /// The phases it begins and ends in.
    pub(super) phases: Range<u32>,
    /// What was counted in those before it began, and when it ended.
    pub(super) tallies: [Tally; 2],
}

impl TraceSlice {
    /// Where one of its allocations stands among them.
    pub(crate) fn place(&self, id: AllocationId) -> AllocationId {
        id.wrapping_sub(self.allocations.start)
    }
}

impl Recorder {
    pub(crate) fn moment(&self) -> Moment {
        let trace = self.trace.borrow();
        Moment {
            event: trace.events.len(),
            allocation: trace.allocations.len() as AllocationId,
            phase: self.current_phase(),
            tally: self.counter.tally(),
        }
    }

    /// What was recorded since `moment`.
    pub(crate) fn slice_since(&self, moment: &Moment) -> TraceSlice {
        let now = self.moment();
        TraceSlice {
            events: moment.event..now.event,
            allocations: moment.allocation..now.allocation,
            phases: moment.phase..now.phase,
            tallies: [moment.tally, now.tally],
        }
    }

    /// What was counted since `moment`, in this phase, happens `times` more times, which are left out of the trace.
    pub(crate) fn count_again(&self, moment: &Moment, times: u64) {
        if self.current_phase() == moment.phase {
            self.counter.repeat_since(&moment.tally, times);
        }
    }
}
