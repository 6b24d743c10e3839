//! One pass of a trace through the caching allocator.

use std::ops::Range;

use crate::growing::{self, Place};
use crate::peaks::{Peaks, Tally};
use crate::trace::{AllocationId, Event, Phase, Repeat, Trace};
use crate::{AllocatorConfig, BlockId, CachingAllocator};

/// The allocator, the blocks it gave out, and the figures so far.
pub struct Pass {
    allocator: CachingAllocator,
    blocks: Vec<BlockId>,
    tally: Tally,
}

/// Replays `trace` on a device that never runs out; `None` when even the address space does.
pub fn counted_peaks(trace: &Trace, config: &AllocatorConfig) -> Option<Peaks> {
    let mut pass = Pass::new(trace, config);
    let mut index = 0;
    while let Some(event) = trace.events.get(index) {
        index = match *event {
            // Nearly all events are these two.
            Event::Alloc(id) => {
                pass.count_allocation(trace, index, id)?;
                index + 1
            }
            Event::Free(id) => {
                pass.count_free(id);
                index + 1
            }
            event => pass.advance_event(trace, index, event)?,
        };
    }
    Some(pass.finish())
}

impl Pass {
    /// Before the first event of `trace`.
    pub fn new(trace: &Trace, config: &AllocatorConfig) -> Self {
        let allocator = CachingAllocator::new(config.clone(), None);
        Self { allocator, blocks: vec![BlockId::NONE; trace.allocations.len()], tally: Tally::default() }
    }

    /// Allocated and reserved bytes now.
    pub fn current_bytes(&self) -> (u64, u64) {
        let stats = self.allocator.stats();
        (stats.allocated, stats.reserved)
    }

    /// Applies one event, a repeated stretch with it, and returns the index of the next.
    fn advance_event(&mut self, trace: &Trace, index: usize, event: Event) -> Option<usize> {
        match event {
            Event::Repeat(at) => {
                let Repeat { until, times } = trace.repeats[at as usize];
                self.repeat_stretch(trace, index + 1..until, times)?;
                Some(until)
            }
            event => {
                self.count_event(trace, index, event)?;
                Some(index + 1)
            }
        }
    }

    /// Applies a stretch of events so many times, until it changes nothing any more.
    fn repeat_stretch(&mut self, trace: &Trace, stretch: Range<usize>, times: u64) -> Option<()> {
        for _ in 0..times {
            let before = self.allocator.arrangement();
            for index in stretch.clone() {
                self.count_event(trace, index, trace.events[index])?;
            }
            if before.is_some() && before == self.allocator.arrangement() {
                break;
            }
        }
        Some(())
    }

    /// Applies one event; where it announces a stretch that happens several times, all of it but the last time. `None` when
    /// the address space is full.
    pub fn count_event(&mut self, trace: &Trace, index: usize, event: Event) -> Option<()> {
        match event {
            Event::Alloc(id) => self.count_allocation(trace, index, id)?,
            Event::Free(id) => self.count_free(id),
            Event::Phase(phase) => self.begin_phase(trace.phases[phase as usize]),
            Event::EmptyCache => self.allocator.empty_cache(),
            Event::Repeat(at) => {
                let Repeat { until, times } = trace.repeats[at as usize];
                self.repeat_stretch(trace, index + 1..until, times.saturating_sub(1))?;
            }
            Event::Growing(at) => {
                let Self { allocator, blocks, tally } = self;
                let growing = &trace.growing[at as usize];
                let mut rises = |allocated, place| tally.note_rise(allocated, place);
                growing::run_all_but_last((allocator, blocks), (trace, index + 1), growing, &mut rises).ok()?;
            }
        }
        Some(())
    }

    #[inline(always)]
    fn count_allocation(&mut self, trace: &Trace, index: usize, id: AllocationId) -> Option<()> {
        let asked = &trace.allocations[id as usize];
        self.blocks[id as usize] = self.allocator.malloc_on(asked.stream, asked.bytes).ok()?;
        self.tally.note_rise(self.allocator.stats().allocated, Place { event: index, back: 0 });
        Some(())
    }

    #[inline(always)]
    fn count_free(&mut self, id: AllocationId) {
        self.allocator.free(std::mem::replace(&mut self.blocks[id as usize], BlockId::NONE));
    }

    fn begin_phase(&mut self, phase: Phase) {
        self.tally.begin_phase(phase, self.allocator.stats().into());
        self.allocator.reset_peaks();
    }

    fn finish(self) -> Peaks {
        self.tally.finish(self.allocator.stats().into(), self.allocator.reserved_by_stream())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Allocation, PhaseKind};
    use crate::units::MIB;

    fn trace(events: Vec<Event>, sizes: &[u64], phases: &[(PhaseKind, u32)]) -> Trace {
        Trace {
            events,
            allocations: sizes.iter().map(|bytes| Allocation::of_bytes(*bytes)).collect(),
            origins: Vec::new(),
            modules: vec![String::new()],
            phases: phases.iter().map(|(kind, step)| Phase { kind: *kind, step: *step }).collect(),
            repeats: Vec::new(),
            growing: Vec::new(),
        }
    }

    #[test]
    fn a_phase_begins_with_what_is_alive_and_the_first_of_equals_is_the_peak() {
        let events = vec![
            Event::Phase(0),
            Event::Alloc(0),
            Event::Phase(1),
            Event::Alloc(1),
            Event::Phase(2),
            Event::Free(1),
            Event::Phase(1),
            Event::Phase(3),
        ];
        let kinds = [(PhaseKind::Load, 0), (PhaseKind::Forward, 1), (PhaseKind::Backward, 1), (PhaseKind::End, 1)];
        let peaks = counted_peaks(&trace(events, &[2 * MIB, 4 * MIB], &kinds), &AllocatorConfig::default()).unwrap();
        let figures: Vec<_> = peaks.phases.iter().map(|peak| (peak.phase.label(), peak.allocated / MIB)).collect();
        let expected = [("0:load", 2), ("1:forward", 6), ("1:backward", 6)].map(|(label, mib)| (label.to_owned(), mib));
        assert_eq!(figures, expected);
        assert_eq!(peaks.peak_phase().unwrap().label(), "1:forward");
        assert_eq!((peaks.place.event, peaks.after_load / MIB, peaks.steady_state / MIB), (3, 2, 2));
        assert_eq!((peaks.reserved / MIB, peaks.rounded512 / MIB), (20, 6));
    }
}
