//! Slices of one phase that happen again elsewhere in the model, in other modules and on other memory.

use super::TraceSlice;
use crate::tensor::recorder::Recorder;
use crate::trace::{Allocation, AllocationId, Event};

/// How the names in a slice change when it happens again: the module, and allocations from before the slice.
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

impl TraceSlice {
    /// The allocation that stands for `id` in a copy whose allocations begin at `first`.
    fn renamed(&self, id: AllocationId, first: AllocationId, renaming: &Renaming) -> Option<AllocationId> {
        if self.allocations.contains(&id) { Some(id - self.allocations.start + first) } else { renaming.freed(id) }
    }
}

impl Recorder {
    /// Whether the slice, which holds allocations and frees only, leaves exactly `kept` alive of what it allocates, and
    /// of the rest frees exactly `freed`.
    pub(crate) fn leaves(&self, slice: &TraceSlice, kept: [AllocationId; 3], freed: [AllocationId; 2]) -> bool {
        let trace = self.trace.borrow();
        let (mut allocated, mut own, mut others) = (0, 0, 0);
        for event in &trace.events[slice.events.clone()] {
            match event {
                Event::Alloc(_) => allocated += 1,
                Event::Free(id) if kept.contains(id) => return false,
                Event::Free(id) if slice.allocations.contains(id) => own += 1,
                Event::Free(id) if freed.contains(id) => others += 1,
                _ => return false,
            }
        }
        kept.iter().all(|id| slice.allocations.contains(id)) && own + kept.len() == allocated && others == freed.len()
    }

    /// Whether `other` is what `slice` becomes when it is renamed.
    pub(crate) fn is_copy(&self, slice: &TraceSlice, other: &TraceSlice, renaming: &Renaming) -> bool {
        let trace = self.trace.borrow();
        let first = other.allocations.start;
        let same_event = |(event, copy): (&Event, &Event)| match (event, copy) {
            (Event::Alloc(id), Event::Alloc(copy)) | (Event::Free(id), Event::Free(copy)) => {
                slice.renamed(*id, first, renaming) == Some(*copy)
            }
            _ => false,
        };
        let range = |slice: &TraceSlice| slice.allocations.start as usize..slice.allocations.end as usize;
        let (allocations, copies) = (&trace.allocations[range(slice)], &trace.allocations[range(other)]);
        let (events, others) = (&trace.events[slice.events.clone()], &trace.events[other.events.clone()]);
        events.len() == others.len()
            && allocations.len() == copies.len()
            && events.iter().zip(others).all(same_event)
            && allocations.iter().zip(copies).all(|(allocation, copy)| {
                *copy == Allocation { module: allocation.module.wrapping_add(renaming.modules), ..*allocation }
            })
    }

    /// The slice happens again, renamed, now. Returns what stands for an allocation of its own.
    pub(crate) fn copy_renamed<'a>(
        &self,
        slice: &'a TraceSlice,
        renaming: &Renaming,
    ) -> impl Fn(AllocationId) -> AllocationId + use<'a> {
        self.counter.repeat_between(&slice.tallies, 1);
        let mut trace = self.trace.borrow_mut();
        let first = trace.allocations.len() as AllocationId;
        let (from, until) = (slice.allocations.start as usize, slice.allocations.end as usize);
        trace.allocations.extend_from_within(from..until);
        for allocation in &mut trace.allocations[first as usize..] {
            allocation.module = allocation.module.wrapping_add(renaming.modules);
        }
        let begin = trace.events.len();
        trace.events.extend_from_within(slice.events.clone());
        for event in &mut trace.events[begin..] {
            if let Event::Alloc(id) | Event::Free(id) = event {
                *id = slice.renamed(*id, first, renaming).unwrap_or(*id);
            }
        }
        move |id| slice.place(id).wrapping_add(first)
    }
}
