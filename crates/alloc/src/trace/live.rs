//! What of a trace is alive at once: no allocator is needed to say so.

use super::{AllocationId, Event, Trace};
use crate::config::MIN_BLOCK_SIZE;
use crate::units::round_up;

impl Trace {
    /// The most bytes that are alive at one moment, each request rounded up to 512: on less no device goes through. `None` where
    /// stretches grow, because what lives the times before the last is not among the events.
    pub fn most_live_bytes(&self) -> Option<u64> {
        if !self.growing.is_empty() {
            return None;
        }
        let size =
            |id: AllocationId| self.allocations.get(id as usize).map_or(0, |a| round_up(a.bytes, MIN_BLOCK_SIZE));
        let (mut live, mut most) = (0_u64, 0_u64);
        for event in &self.events {
            match event {
                Event::Alloc(id) => {
                    live = live.saturating_add(size(*id));
                    most = most.max(live);
                }
                Event::Free(id) => live = live.saturating_sub(size(*id)),
                // A repeated stretch frees all that it allocates, and is as high each time.
                Event::Phase(_) | Event::EmptyCache | Event::Repeat(_) | Event::Growing(_) => {}
            }
        }
        Some(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AllocatorConfig;
    use crate::pass::counted_peaks;
    use crate::trace::{Allocation, Growing, Phase, PhaseKind, Repeat};

    /// Two small ones, the second freed before a third that happens thrice.
    fn trace() -> Trace {
        let events = vec![
            Event::Phase(0),
            Event::Alloc(0),
            Event::Alloc(1),
            Event::Free(1),
            Event::Repeat(0),
            Event::Alloc(2),
            Event::Free(2),
        ];
        Trace {
            events,
            allocations: [1, 700, 513].map(Allocation::of_bytes).to_vec(),
            phases: vec![Phase { kind: PhaseKind::Load, step: 0 }],
            modules: vec![String::new()],
            repeats: vec![Repeat { until: 7, times: 3 }],
            ..Trace::default()
        }
    }

    #[test]
    fn live_bytes_are_those_of_a_replay() {
        let trace = trace();
        let replayed = counted_peaks(&trace, &AllocatorConfig::default()).unwrap();
        assert_eq!(trace.most_live_bytes(), Some(512 + 1024));
        assert_eq!(trace.most_live_bytes(), Some(replayed.rounded512));
    }

    #[test]
    fn of_stretches_that_grow_nothing_is_said() {
        let growing = Growing { until: 7, times: 2, ..Growing::default() };
        assert_eq!(Trace { growing: vec![growing], ..trace() }.most_live_bytes(), None);
    }
}
