//! What of a trace is alive at once: no allocator is needed to say so.

use super::{AllocationId, Event, Phase, Trace};
use crate::config::MIN_BLOCK_SIZE;
use crate::units::round_up;

/// Requests that are alive together.
struct Live<'a> {
    trace: &'a Trace,
    bytes: u64,
    is_alive: Vec<bool>,
}

impl Live<'_> {
    fn size_of(&self, id: AllocationId) -> u64 {
        self.trace.allocations.get(id as usize).map_or(0, |a| round_up(a.bytes, MIN_BLOCK_SIZE))
    }

    fn add(&mut self, id: AllocationId) {
        self.bytes = self.bytes.saturating_add(self.size_of(id));
        if let Some(alive) = self.is_alive.get_mut(id as usize) {
            *alive = true;
        }
    }

    fn remove(&mut self, id: AllocationId) {
        if self.is_alive.get_mut(id as usize).is_some_and(std::mem::take) {
            self.bytes = self.bytes.saturating_sub(self.size_of(id));
        }
    }
}

impl Trace {
    /// Bytes that are alive at the fullest moment, each request rounded up to 512, and the phase of that moment: on less no device goes
    /// through. Where stretches grow it is a lower bound: of those only the recorded time, the last, is counted, without what the time
    /// before left to it.
    pub fn most_live_bytes(&self) -> (u64, Option<Phase>) {
        let mut live = Live { trace: self, bytes: 0, is_alive: vec![false; self.allocations.len()] };
        let (mut phase, mut most) = (None, (0, None));
        for event in &self.events {
            match event {
                Event::Alloc(id) => {
                    live.add(*id);
                    if live.bytes > most.0 {
                        most = (live.bytes, phase);
                    }
                }
                Event::Free(id) => live.remove(*id),
                Event::Phase(at) => phase = self.phases.get(*at as usize).copied(),
                Event::Growing(at) => {
                    let replaced = self.growing.get(*at as usize).map_or(&[][..], |growing| &growing.carried);
                    replaced.iter().for_each(|(before, _)| live.remove(*before));
                }
                // A repeated stretch frees all that it allocates, and is as high each time.
                Event::EmptyCache | Event::Repeat(_) => {}
            }
        }
        most
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
        let phase = trace.phases.first().copied();
        assert_eq!(trace.most_live_bytes(), (512 + 1024, phase));
        assert_eq!(trace.most_live_bytes(), (replayed.rounded512, phase));
    }

    /// A cache that takes the place of the one before, three times: 600, 700 and 800 blocks of 512 bytes.
    #[test]
    fn of_a_stretch_that_grows_its_last_time_counts() {
        let block = 512;
        let growing = Growing {
            until: 5,
            stretch: 2,
            times: 3,
            growth: vec![(1, 100 * block)],
            carried: vec![(0, 1)],
            ..Growing::default()
        };
        let events = vec![Event::Phase(0), Event::Alloc(0), Event::Growing(0), Event::Alloc(1), Event::Free(0)];
        let allocations = [500, 800].map(|blocks| Allocation::of_bytes(blocks * block as u64)).to_vec();
        let trace = Trace { events, allocations, growing: vec![growing], repeats: Vec::new(), ..trace() };
        let replayed = counted_peaks(&trace, &AllocatorConfig::default()).unwrap();
        assert_eq!(trace.most_live_bytes().0, 800 * 512);
        assert_eq!(replayed.rounded512, (700 + 800) * 512);
    }
}
