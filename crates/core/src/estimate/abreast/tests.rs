//! One pass for several devices gives, on each, what a pass of its own gives.

use proptest::prelude::*;

use super::*;
use crate::estimate::pass;
use crate::trace::{Phase, PhaseKind};

const DEVICES: usize = 4;

/// What a made-up program does next.
#[derive(Clone, Debug)]
enum Step {
    /// An allocation that lives on.
    Alloc {
        bytes: u64,
        stream: u8,
    },
    /// The one at this place among the living dies.
    Free(usize),
    /// A kernel's scratch: sizes by device, for each of some requests; what outlives it if anything; who dies within.
    Scratch {
        sizes: Vec<[u64; DEVICES]>,
        outlives: Option<u64>,
        dies: Option<usize>,
        stream: u8,
    },
    /// Another size on each device that lives on, as a workspace does.
    Workspace([u64; DEVICES]),
    EmptyCache,
    Phase(PhaseKind),
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 1..20_000_u64, 3 => 1..1_300_000_u64, 1 => 900_000..40_000_000_u64]
}

/// Mostly the same in a few places, as devices are.
fn sizes() -> impl Strategy<Value = [u64; DEVICES]> {
    (size(), proptest::array::uniform4(prop_oneof![2 => Just(None), 1 => size().prop_map(Some)]))
        .prop_map(|(most, others)| others.map(|other| other.unwrap_or(most)))
}

fn step() -> impl Strategy<Value = Step> {
    let scratch = (
        proptest::collection::vec(sizes(), 1..4),
        proptest::option::weighted(0.2, size()),
        proptest::option::of(any::<usize>()),
        prop_oneof![9 => Just(0), 1 => Just(1)],
    );
    prop_oneof![
        10 => (size(), prop_oneof![9 => Just(0), 1 => Just(1)]).prop_map(|(bytes, stream)| Step::Alloc { bytes, stream }),
        9 => any::<usize>().prop_map(Step::Free),
        8 => scratch.prop_map(|(sizes, outlives, dies, stream)| Step::Scratch { sizes, outlives, dies, stream }),
        1 => sizes().prop_map(Step::Workspace),
        1 => Just(Step::EmptyCache),
        1 => prop_oneof![Just(PhaseKind::Forward), Just(PhaseKind::Generate), Just(PhaseKind::End)].prop_map(Step::Phase),
    ]
}

/// A program in the making: the trace of the first device, and the sizes of all.
#[derive(Default)]
struct Program {
    trace: Trace,
    alive: Vec<u32>,
    by_name: Vec<[u64; DEVICES]>,
}

impl Program {
    fn of(steps: &[Step]) -> Self {
        let mut program = Self { trace: Trace { modules: vec![String::new()], ..Trace::default() }, ..Self::default() };
        program.phase(PhaseKind::Load);
        steps.iter().for_each(|step| program.step(step));
        program
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Alloc { bytes, stream } => {
                let id = self.alloc(*bytes, *stream, 0);
                self.alive.push(id);
            }
            Step::Free(at) => self.free(*at),
            Step::Scratch { sizes, outlives, dies, stream } => {
                let scratch: Vec<u32> = sizes.iter().map(|sizes| self.alloc_named(*sizes, *stream)).collect();
                dies.iter().for_each(|at| self.free(*at));
                let outliving = outlives.map(|bytes| self.alloc(bytes, *stream, 0));
                self.trace.events.extend(scratch.into_iter().rev().map(Event::Free));
                self.alive.extend(outliving);
            }
            Step::Workspace(sizes) => {
                let id = self.alloc_named(*sizes, 0);
                self.alive.push(id);
            }
            Step::EmptyCache => self.trace.events.push(Event::EmptyCache),
            Step::Phase(kind) => self.phase(*kind),
        }
    }

    fn phase(&mut self, kind: PhaseKind) {
        self.trace.events.push(Event::Phase(self.trace.phases.len() as u32));
        self.trace.phases.push(Phase { kind, step: 1 });
    }

    fn alloc(&mut self, bytes: u64, stream: u8, sizes: u32) -> u32 {
        let id = self.trace.allocations.len() as u32;
        self.trace.allocations.push(Allocation { stream, sizes, ..Allocation::of_bytes(bytes) });
        self.trace.events.push(Event::Alloc(id));
        id
    }

    fn alloc_named(&mut self, sizes: [u64; DEVICES], stream: u8) -> u32 {
        self.by_name.push(sizes);
        self.alloc(sizes[0], stream, self.by_name.len() as u32)
    }

    fn free(&mut self, at: usize) {
        if !self.alive.is_empty() {
            let id = self.alive.swap_remove(at % self.alive.len());
            self.trace.events.push(Event::Free(id));
        }
    }

    fn sizes_on(&self, device: usize) -> Vec<u64> {
        self.by_name.iter().map(|sizes| sizes[device]).collect()
    }

    /// The trace as it is recorded on a device.
    fn on(&self, device: usize) -> Trace {
        let mut trace = self.trace.clone();
        for allocation in trace.allocations.iter_mut().filter(|allocation| allocation.sizes > 0) {
            allocation.bytes = self.by_name[allocation.sizes as usize - 1][device];
        }
        trace
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn several_devices_at_once_are_as_each_alone(steps in proptest::collection::vec(step(), 1..400)) {
        let program = Program::of(&steps);
        let sizes: Vec<Vec<u64>> = (0..DEVICES).map(|device| program.sizes_on(device)).collect();
        let config = AllocatorConfig::default();
        let together = peaks_abreast(&program.trace, &config, &Sizes::new(&sizes)).unwrap();
        for (device, peaks) in together.iter().enumerate() {
            prop_assert_eq!(peaks, &pass::peaks(&program.on(device), &config).unwrap(), "device {}", device);
        }
    }
}

#[test]
fn other_settings_are_left_to_passes_of_their_own() {
    let program = Program::of(&[Step::Alloc { bytes: 7, stream: 0 }]);
    let sizes = Sizes::new(&[Vec::new(), Vec::new()]);
    let expandable = AllocatorConfig { expandable_segments: true, ..AllocatorConfig::default() };
    assert!(peaks_abreast(&program.trace, &expandable, &sizes).is_none());
    assert_eq!(peaks_abreast(&program.trace, &AllocatorConfig::default(), &sizes).map(|peaks| peaks.len()), Some(2));
}
