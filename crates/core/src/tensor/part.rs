//! Parts of a training pass that happen again in later passes, phases and all: recorded once, copied from then on.

use std::ops::Range;

use super::context::{Context, Moment};
use super::counter::Tally;
use crate::trace::{Allocation, AllocationId, Category, Event, Phase};

/// What was recorded between two moments.
pub(crate) struct Part {
    events: Range<usize>,
    allocations: Range<AllocationId>,
    /// The phases it begins and ends in.
    phases: Range<u32>,
    /// What was counted in those before it began, and when it ended.
    tallies: [Tally; 2],
}

/// What stands in a copy for the allocations of the parts that are copied.
pub(crate) struct Copied {
    first: AllocationId,
    ids: Vec<AllocationId>,
}

impl Copied {
    /// Of parts of one pass, in their order; nothing is copied yet.
    pub(crate) fn new(parts: &[Part]) -> Self {
        let (first, until) = span(parts);
        Self { first, ids: vec![AllocationId::MAX; until.saturating_sub(first) as usize] }
    }

    fn slot(&mut self, id: AllocationId) -> &mut AllocationId {
        &mut self.ids[(id - self.first) as usize]
    }

    /// What stands for an allocation that was copied.
    pub(crate) fn id(&self, id: AllocationId) -> AllocationId {
        self.ids[(id - self.first) as usize]
    }
}

/// The first allocation of the parts, and the one after their last.
fn span(parts: &[Part]) -> (AllocationId, AllocationId) {
    let first = parts.first().map_or(0, |part| part.allocations.start);
    (first, parts.last().map_or(first, |part| part.allocations.end))
}

impl Context {
    /// What was recorded since `moment`, as a part.
    pub(crate) fn part_since(&self, moment: &Moment) -> Part {
        let now = self.moment();
        Part {
            events: moment.event..now.event,
            allocations: moment.allocation..now.allocation,
            phases: moment.phase..now.phase,
            tallies: [moment.tally, now.tally],
        }
    }

    /// What the parts leave alive of what they allocate, workspaces aside. `None` where they free anything else, or do
    /// more than allocate, free and begin phases.
    pub(crate) fn left_by(&self, parts: &[Part]) -> Option<Vec<AllocationId>> {
        let trace = self.trace.borrow();
        let (first, until) = span(parts);
        let mut is_left = vec![false; until.saturating_sub(first) as usize];
        for event in parts.iter().flat_map(|part| &trace.events[part.events.clone()]) {
            match *event {
                Event::Alloc(id) => {
                    is_left[(id - first) as usize] = !is_workspace(&trace.allocations[id as usize]);
                }
                Event::Free(id) => {
                    let is_left = is_left.get_mut(id.wrapping_sub(first) as usize).filter(|is_left| **is_left)?;
                    *is_left = false;
                }
                Event::Phase(_) => {}
                Event::EmptyCache | Event::Repeat(_) => return None,
            }
        }
        Some((first..until).zip(is_left).filter_map(|(id, is_left)| is_left.then_some(id)).collect())
    }

    /// The part happens again, now; what it frees of earlier parts is what was copied of them.
    pub(crate) fn copy_part(&self, part: &Part, copied: &mut Copied) {
        let mut trace = self.trace.borrow_mut();
        let later = self.current_phase() - part.phases.start;
        for index in part.events.clone() {
            match trace.events[index] {
                Event::Alloc(id) => {
                    let allocation = trace.allocations[id as usize];
                    // Workspaces are there by now.
                    if !is_workspace(&allocation) {
                        let new = trace.allocations.len() as AllocationId;
                        trace.allocations.push(Allocation { phase: allocation.phase + later, ..allocation });
                        trace.events.push(Event::Alloc(new));
                        *copied.slot(id) = new;
                    }
                }
                Event::Free(id) => trace.events.push(Event::Free(copied.id(id))),
                Event::Phase(phase) => {
                    let Phase { kind, .. } = trace.phases[phase as usize];
                    trace.phases.push(Phase { kind, step: self.current_step() });
                    trace.events.push(Event::Phase(phase + later));
                }
                Event::EmptyCache | Event::Repeat(_) => {}
            }
        }
        self.set_phase(part.phases.end + later);
        self.counter.copy_phases(&part.phases, &part.tallies);
    }
}

fn is_workspace(allocation: &Allocation) -> bool {
    allocation.category == Category::Workspace
}
