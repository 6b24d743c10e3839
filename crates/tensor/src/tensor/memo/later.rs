//! Slices that happen again later in the job, phases and all.

use std::ops::Range;

use super::{Moment, TraceSlice};
use crate::tensor::recorder::Recorder;
use tonnage_alloc::trace::{Allocation, AllocationId, Category, Event, Growing, Phase, Repeat, Trace};

/// Stands for an allocation that has no copy.
const NOT_COPIED: AllocationId = AllocationId::MAX;
/// Events of a long slice.
const LONG: usize = 1 << 16;
/// How often slices of long passes are mostly copied.
const COPIES: usize = 8;

/// What stands in a copy for the allocations of the slices that are copied.
pub struct Copied {
    first: AllocationId,
    ids: Vec<AllocationId>,
}

impl Copied {
    /// Of slices of one pass, in their order; nothing is copied yet.
    pub fn new(slices: &[TraceSlice]) -> Self {
        let (first, until) = span_of(slices);
        Self { first, ids: vec![NOT_COPIED; until.saturating_sub(first) as usize] }
    }

    fn slots(&mut self, ids: Range<AllocationId>) -> &mut [AllocationId] {
        &mut self.ids[(ids.start - self.first) as usize..(ids.end - self.first) as usize]
    }

    /// What stands for an allocation that was copied.
    pub fn id(&self, id: AllocationId) -> AllocationId {
        self.ids[(id - self.first) as usize]
    }
}

/// The first allocation of the slices, and the one after their last.
fn span_of(slices: &[TraceSlice]) -> (AllocationId, AllocationId) {
    let first = slices.first().map_or(0, |slice| slice.allocations.start);
    (first, slices.last().map_or(first, |slice| slice.allocations.end))
}

impl Recorder {
    /// What the slices leave alive of what they allocate, workspaces aside. `None` where they free anything else, or do
    /// more than allocate, free and begin phases.
    pub fn left_by(&self, slices: &[TraceSlice]) -> Option<Vec<AllocationId>> {
        let trace = self.trace.borrow();
        let (first, until) = span_of(slices);
        let mut is_left = vec![false; until.saturating_sub(first) as usize];
        for slice in slices {
            let [start, end] = [slice.allocations.start, slice.allocations.end].map(|id| id as usize);
            let made = &mut is_left[start - first as usize..end - first as usize];
            made.iter_mut()
                .zip(&trace.allocations[start..end])
                .for_each(|(is_left, one)| *is_left = !is_workspace(one));
        }
        for event in slices.iter().flat_map(|slice| &trace.events[slice.events.clone()]) {
            match *event {
                Event::Free(id) => {
                    let is_left = is_left.get_mut(id.wrapping_sub(first) as usize).filter(|is_left| **is_left)?;
                    *is_left = false;
                }
                Event::Alloc(_) | Event::Phase(_) | Event::Growing(_) => {}
                Event::EmptyCache | Event::Repeat(_) => return None,
            }
        }
        Some((first..until).zip(is_left).filter_map(|(id, is_left)| is_left.then_some(id)).collect())
    }

    /// The slice happens again, now; what it frees of earlier slices is what was copied of them.
    pub fn copy_later(&self, slice: &TraceSlice, copied: &mut Copied) {
        let mut trace = self.trace.borrow_mut();
        let later = self.current_phase() - slice.phases.start;
        slice.make_room(&mut trace);
        let copies_all = slice.copy_allocations(&mut trace, later, copied);
        slice.copy_events(&mut trace, later, copied, copies_all);
        for at in slice.phases.start + 1..=slice.phases.end {
            let Phase { kind, .. } = trace.phases[at as usize];
            trace.phases.push(Phase { kind, step: self.current_step() });
        }
        self.set_phase(slice.phases.end + later);
        self.counter.copy_phases(&slice.phases, &slice.tallies);
    }

    /// What happened since `moment` happens `times` more times, now. What it left alive (workspaces, autocast's copies of
    /// weights) is there by then. `false`, and nothing happens, where it freed what it had not allocated.
    pub fn repeat_since(&self, moment: &Moment, times: u64) -> bool {
        let mut trace = self.trace.borrow_mut();
        let again = trace.events[moment.event..].to_vec();
        let is_own = |event: &Event| match event {
            Event::Alloc(_) => true,
            Event::Free(id) => *id >= moment.allocation,
            Event::Phase(_) | Event::EmptyCache | Event::Repeat(_) | Event::Growing(_) => false,
        };
        if !again.iter().all(is_own) {
            return false;
        }
        let repeat = trace.repeats.len();
        trace.events.push(Event::Repeat(repeat as u32));
        trace.append_again(&again);
        let until = trace.events.len();
        trace.repeats.push(Repeat { until, times });
        self.counter.repeat_since(&moment.tally, times);
        true
    }

    /// What was computed since `moment` is computed `times` more times, by kernels whose allocations are left out.
    pub fn compute_again(&self, moment: &Moment, times: u64) {
        self.counter.repeat_since(&moment.tally, times);
    }

    /// A slice of one phase that leaves nothing happens `times` more times, now: it is copied once.
    pub fn repeat_whole(&self, slice: &TraceSlice, times: u64) {
        let Some(not_copied) = times.checked_sub(1) else { return };
        slice.begin_repeat(&mut self.trace.borrow_mut());
        self.copy_later(slice, &mut Copied::new(std::slice::from_ref(slice)));
        let mut trace = self.trace.borrow_mut();
        let until = trace.events.len();
        trace.repeats.push(Repeat { until, times });
        self.counter.repeat_between(&slice.tallies, not_copied);
    }
}

impl TraceSlice {
    /// A long slice has room for the copies that mostly follow: what grows by doubling is there twice while it moves, hundreds of MiB,
    /// and what is not written takes no memory.
    fn make_room(&self, trace: &mut Trace) {
        let reserve = |free: usize, length: usize| if length > free { COPIES * length } else { 0 };
        if self.events.len() >= LONG {
            trace.events.reserve_exact(reserve(trace.events.capacity() - trace.events.len(), self.events.len()));
            let free = trace.allocations.capacity() - trace.allocations.len();
            trace.allocations.reserve_exact(reserve(free, self.allocations.len()));
        }
    }

    /// Announces the next repeat. There is room for the slice twice then, as what happens in one step mostly does in the next.
    fn begin_repeat(&self, trace: &mut Trace) {
        trace.events.reserve(2 * self.events.len());
        trace.allocations.reserve(2 * self.allocations.len());
        let repeat = trace.repeats.len();
        trace.events.push(Event::Repeat(repeat as u32));
    }

    /// Whether all of them are copied: workspaces are there by then.
    fn copy_allocations(&self, trace: &mut Trace, later: u32, copied: &mut Copied) -> bool {
        let mut id = self.allocations.start;
        while id < self.allocations.end {
            let rest = &trace.allocations[id as usize..self.allocations.end as usize];
            let workspace = rest.iter().position(is_workspace);
            let until = workspace.map_or(self.allocations.end, |at| id + at as AllocationId);
            let begin = trace.allocations.len();
            trace.allocations.extend_from_within(id as usize..until as usize);
            trace.allocations[begin..].iter_mut().for_each(|allocation| allocation.phase += later);
            copied.slots(id..until).iter_mut().zip(begin as AllocationId..).for_each(|(slot, copy)| *slot = copy);
            id = until + AllocationId::from(workspace.is_some());
        }
        copied.slots(self.allocations.clone()).iter().all(|id| *id != NOT_COPIED)
    }

    fn copy_events(&self, trace: &mut Trace, later: u32, copied: &Copied, copies_all: bool) {
        let begin = trace.events.len();
        trace.events.extend_from_within(self.events.clone());
        for event in &mut trace.events[begin..] {
            match event {
                Event::Alloc(id) | Event::Free(id) => *id = copied.id(*id),
                Event::Phase(phase) => *phase += later,
                Event::EmptyCache | Event::Repeat(_) | Event::Growing(_) => {}
            }
        }
        if !copies_all {
            let is_copied = |event: &Event| *event != Event::Alloc(NOT_COPIED);
            // Workspaces are allocated before anything grows, so that growing stretches are copied whole.
            let events = trace.events.split_off(begin);
            trace.events.extend(events.into_iter().filter(is_copied));
        }
        if !trace.growing.is_empty() {
            copy_growing(trace, begin, copied);
        }
    }
}

/// Gives the growing stretches that were copied to `begin` and behind it their own sizes and ends.
fn copy_growing(trace: &mut Trace, begin: usize, copied: &Copied) {
    for index in begin..trace.events.len() {
        let Event::Growing(at) = trace.events[index] else { continue };
        let Some(growing) = trace.growing.get(at as usize) else { continue };
        let mut copy = Growing {
            until: index + 1 + growing.stretch,
            growth: growing.growth.iter().map(|(id, growth)| (copied.id(*id), *growth)).collect(),
            carried: growing.carried.iter().map(|(old, new)| (copied.id(*old), copied.id(*new))).collect(),
            ..*growing
        };
        copy.growth.sort_unstable();
        trace.events[index] = Event::Growing(trace.growing.len() as u32);
        trace.growing.push(copy);
    }
}

fn is_workspace(allocation: &Allocation) -> bool {
    allocation.category == Category::Workspace
}
