//! Replays a stretch of events that happens many times with sizes that grow: tokens that are generated.
//!
//! Layers do the same after one another (`layers`). Most of what a layer asks for is small, and gone when it ends: where
//! the small blocks that live lie as they did some layers before, the small pool answers the layers that follow as it
//! answered those. So only their large requests are made, and the counters are told how high the small ones rise between.
//! In very long generations small requests are given blocks now and then alone (`counted`).

mod counted;
mod counters;
mod layers;

use super::arena::{BlockId, NIL};
use super::caching::{CachingAllocator, OutOfMemory};
use super::config::{MIN_BLOCK_SIZE, SMALL_SIZE};
use crate::trace::{Event, Growing, Trace};
use crate::units::round_up;
use counted::Counted;
use layers::Layers;

/// An event of the trace, in one of the times it happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Index of the event in the trace.
    pub event: usize,
    /// How many times before the recorded one.
    pub back: u64,
}

/// One event of the stretch.
#[derive(Clone, Copy, Debug)]
struct Op {
    id: u32,
    stream: u8,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Asks for so many bytes the first time, and for so many more each time.
    Alloc { bytes: u64, growth: i64 },
    /// Frees what the op at this place has allocated, or what was there before.
    Free { of: Option<usize> },
}

/// What is asked for at a time of the stretch.
fn bytes_at(bytes: u64, growth: i64, time: u64) -> u64 {
    bytes.saturating_add_signed(growth.saturating_mul(time as i64))
}

const fn is_small(bytes: u64) -> bool {
    round_up(bytes, MIN_BLOCK_SIZE) <= SMALL_SIZE
}

/// Where layers do not answer alike, so many times are run before they are watched again.
const UNWATCHED: u64 = 31;

/// Runs every time but the last, which the trace has as ordinary events; `rises` hears of the allocated bytes when they
/// may be the highest.
///
/// # Errors
/// At the first request that does not fit, with the index of its event.
pub fn run_all_but_last(
    (allocator, blocks): (&mut CachingAllocator, &mut Vec<BlockId>),
    (trace, first): (&Trace, usize),
    growing: &Growing,
    rises: &mut dyn FnMut(u64, Place),
) -> Result<(), (usize, Box<OutOfMemory>)> {
    let ops = growing_ops(trace, first, growing);
    let most = ops.iter().map(|op| op.id as usize + 1).max().unwrap_or(0);
    if blocks.len() < most {
        blocks.resize(most, BlockId::NONE);
    }
    let mut run = Run { allocator, blocks, ops: &ops, first, rises, time: 0, back: 0 };
    if growing.stride.small > 1 {
        return Counted::new(&ops, growing).run_counted(&mut run);
    }
    let layers = Layers::find_layers(&ops);
    let (mut time, mut unwatched) = (0, 0);
    while time < growing.times.saturating_sub(1) {
        (run.time, run.back) = (time, growing.times - 1 - time);
        time = growing.size_after(time);
        match &layers {
            Some(layers) if unwatched == 0 && run.allocator.has_plain_settings() => {
                let found = run.with_layers(layers)?;
                unwatched = if found { 0 } else { UNWATCHED };
            }
            _ => {
                run.replay_range(0..ops.len())?;
                unwatched = u64::saturating_sub(unwatched, 1);
            }
        }
        for (old, new) in &growing.carried {
            run.blocks[*old as usize] = std::mem::replace(&mut run.blocks[*new as usize], BlockId::NONE);
        }
    }
    Ok(())
}

/// The events of the stretch as they are the first time.
fn growing_ops(trace: &Trace, first: usize, growing: &Growing) -> Vec<Op> {
    let back = growing.times.saturating_sub(1);
    let stretch = trace.events.get(first..growing.until).unwrap_or_default();
    let mut births = Births::of_stretch(stretch);
    let op = |(at, event): (usize, &Event)| match *event {
        Event::Alloc(id) => {
            let allocation = trace.allocations.get(id as usize)?;
            births.note_birth(id, at);
            let growth = growing.size_less(id, 1);
            let less = growth.saturating_mul(i64::try_from(back).unwrap_or(i64::MAX));
            let bytes = allocation.bytes.saturating_add_signed(-less);
            Some(Op { id, stream: allocation.stream, kind: Kind::Alloc { bytes, growth } })
        }
        Event::Free(id) => Some(Op { id, stream: 0, kind: Kind::Free { of: births.birth_of(id) } }),
        Event::Phase(_) | Event::EmptyCache | Event::Repeat(_) | Event::Growing(_) => None,
    };
    stretch.iter().enumerate().filter_map(op).collect()
}

/// Where in a stretch its allocations are made: they follow one another, so that a table is found faster than a hash.
struct Births {
    first: u32,
    places: Vec<u32>,
}

impl Births {
    fn of_stretch(stretch: &[Event]) -> Self {
        let ids = stretch.iter().filter_map(|event| if let Event::Alloc(id) = event { Some(*id) } else { None });
        let (first, last) = ids.fold((u32::MAX, 0), |(first, last), id| (first.min(id), last.max(id)));
        let count = (u64::from(last) + 1).saturating_sub(u64::from(first)) as usize;
        Self { first, places: vec![NIL; count] }
    }

    fn note_birth(&mut self, id: u32, at: usize) {
        if let Some(place) = self.places.get_mut(id.wrapping_sub(self.first) as usize) {
            *place = at as u32;
        }
    }

    fn birth_of(&self, id: u32) -> Option<usize> {
        let place = self.places.get(id.wrapping_sub(self.first) as usize).filter(|place| **place != NIL)?;
        Some(*place as usize)
    }
}

/// A stretch that is replayed.
struct Run<'a, F> {
    allocator: &'a mut CachingAllocator,
    blocks: &'a mut Vec<BlockId>,
    ops: &'a [Op],
    /// Index of the stretch's first event in the trace.
    first: usize,
    rises: F,
    /// How often it happened before.
    time: u64,
    /// How often it happens after this, to the recorded time.
    back: u64,
}

impl<F: FnMut(u64, Place)> Run<'_, F> {
    fn replay_range(&mut self, range: std::ops::Range<usize>) -> Result<(), (usize, Box<OutOfMemory>)> {
        range.into_iter().try_for_each(|at| self.replay_op(at))
    }

    fn replay_op(&mut self, at: usize) -> Result<(), (usize, Box<OutOfMemory>)> {
        let Op { id, stream, kind } = self.ops[at];
        let block = &mut self.blocks[id as usize];
        match kind {
            Kind::Alloc { bytes, growth } => {
                let malloc = self.allocator.malloc_on(stream, bytes_at(bytes, growth, self.time));
                *block = malloc.map_err(|oom| (self.first + at, oom))?;
                self.note_rise(self.allocator.stats().allocated, at);
            }
            Kind::Free { .. } => self.allocator.free(std::mem::replace(block, BlockId::NONE)),
        }
        Ok(())
    }

    fn note_rise(&mut self, allocated: u64, at: usize) {
        (self.rises)(allocated, Place { event: self.first + at, back: self.back });
    }
}
