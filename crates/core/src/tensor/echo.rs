//! Stretches of the trace that happen again elsewhere in the model: recorded once, copied from then on.

use std::ops::Range;

use super::context::Context;
use super::counter::Tally;
use super::part::Moment;
use crate::trace::{Allocation, AllocationId, Event};

/// What was recorded between two moments, with nothing but allocations and frees in it.
pub(crate) struct Stretch {
    pub(super) events: Range<usize>,
    pub(super) allocations: Range<AllocationId>,
    /// What was counted before it, and after.
    pub(super) tallies: [Tally; 2],
}

/// How the names in a stretch change when it happens again: the module, and allocations from before the stretch.
pub(crate) struct Renaming {
    /// Added to the modules' indices.
    pub modules: u32,
    /// What it frees that it did not allocate, and what is freed in its place.
    pub freed: [Option<(AllocationId, AllocationId)>; 2],
}

impl Renaming {
    fn freed(&self, id: AllocationId) -> Option<AllocationId> {
        self.freed.iter().flatten().find(|(old, _)| *old == id).map(|(_, new)| *new)
    }
}

impl Stretch {
    /// Where one of its allocations stands among them.
    pub(crate) fn place(&self, id: AllocationId) -> AllocationId {
        id.wrapping_sub(self.allocations.start)
    }

    /// The allocation that stands for `id` in a copy whose allocations begin at `first`.
    fn renamed(&self, id: AllocationId, first: AllocationId, renaming: &Renaming) -> Option<AllocationId> {
        if self.allocations.contains(&id) { Some(id - self.allocations.start + first) } else { renaming.freed(id) }
    }
}

impl Context {
    /// What was recorded since `moment`.
    pub(crate) fn stretch_since(&self, moment: &Moment) -> Stretch {
        let now = self.moment();
        Stretch {
            events: moment.event..now.event,
            allocations: moment.allocation..now.allocation,
            tallies: [moment.tally, now.tally],
        }
    }

    /// Whether the stretch, which holds allocations and frees only, leaves exactly `kept` alive of what it allocates, and
    /// of the rest frees exactly `freed`.
    pub(crate) fn leaves(&self, stretch: &Stretch, kept: [AllocationId; 3], freed: [AllocationId; 2]) -> bool {
        let trace = self.trace.borrow();
        let (mut allocated, mut own, mut others) = (0, 0, 0);
        for event in &trace.events[stretch.events.clone()] {
            match event {
                Event::Alloc(_) => allocated += 1,
                Event::Free(id) if kept.contains(id) => return false,
                Event::Free(id) if stretch.allocations.contains(id) => own += 1,
                Event::Free(id) if freed.contains(id) => others += 1,
                _ => return false,
            }
        }
        kept.iter().all(|id| stretch.allocations.contains(id)) && own + kept.len() == allocated && others == freed.len()
    }

    /// Whether `other` is what `stretch` becomes when it is renamed.
    pub(crate) fn is_echo(&self, stretch: &Stretch, other: &Stretch, renaming: &Renaming) -> bool {
        let trace = self.trace.borrow();
        let first = other.allocations.start;
        let same_event = |(event, echo): (&Event, &Event)| match (event, echo) {
            (Event::Alloc(id), Event::Alloc(echo)) | (Event::Free(id), Event::Free(echo)) => {
                stretch.renamed(*id, first, renaming) == Some(*echo)
            }
            _ => false,
        };
        let range = |stretch: &Stretch| stretch.allocations.start as usize..stretch.allocations.end as usize;
        let (allocations, echoes) = (&trace.allocations[range(stretch)], &trace.allocations[range(other)]);
        let (events, others) = (&trace.events[stretch.events.clone()], &trace.events[other.events.clone()]);
        events.len() == others.len()
            && allocations.len() == echoes.len()
            && events.iter().zip(others).all(same_event)
            && allocations.iter().zip(echoes).all(|(allocation, echo)| {
                *echo == Allocation { module: allocation.module.wrapping_add(renaming.modules), ..*allocation }
            })
    }

    /// The stretch happens again, renamed, now. Returns what stands for an allocation of its own.
    pub(crate) fn echo<'a>(
        &self,
        stretch: &'a Stretch,
        renaming: &Renaming,
    ) -> impl Fn(AllocationId) -> AllocationId + use<'a> {
        self.counter.repeat_between(&stretch.tallies, 1);
        let mut trace = self.trace.borrow_mut();
        let first = trace.allocations.len() as AllocationId;
        let (from, until) = (stretch.allocations.start as usize, stretch.allocations.end as usize);
        trace.allocations.extend_from_within(from..until);
        for allocation in &mut trace.allocations[first as usize..] {
            allocation.module = allocation.module.wrapping_add(renaming.modules);
        }
        let begin = trace.events.len();
        trace.events.extend_from_within(stretch.events.clone());
        for event in &mut trace.events[begin..] {
            if let Event::Alloc(id) | Event::Free(id) = event {
                *id = stretch.renamed(*id, first, renaming).unwrap_or(*id);
            }
        }
        move |id| stretch.place(id).wrapping_add(first)
    }
}
