//! The host's memory that offloading takes: what one process holds there, pinned or not, and how PyTorch rounds it.
//!
//! A process records what it keeps on the host in a trace of its own, whose streams are the kinds of host memory.

use crate::small_sort::SmallSort;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use tonnage_alloc::trace::{Allocation, AllocationId, Category, Event, Trace};

/// How the host holds a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostKind {
    /// From the system's allocator, byte for byte.
    Pageable,
    /// Page-locked, from PyTorch's caching host allocator.
    Pinned,
}

impl HostKind {
    /// Pinned, if that was asked for.
    pub const fn pinned(pin_memory: bool) -> Self {
        if pin_memory { Self::Pinned } else { Self::Pageable }
    }

    /// The stream of the host's trace that stands for it.
    pub const fn stream(self) -> u8 {
        self as u8
    }

    const fn of_stream(stream: u8) -> Self {
        Self::pinned(stream == Self::Pinned.stream())
    }
}

/// GPUs of a machine where there are as many ranks: those of HGX and DGX boards, and of nearly all machines for rent.
const GPUS_OF_A_MACHINE: u64 = 8;

/// What a process holds on the host when that is most, of what was offloaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostMemory {
    /// What the caching host allocator has taken: blocks of powers of two, which it keeps when they are free.
    pub pinned_bytes: u64,
    /// What lies in other memory of the host.
    pub pageable_bytes: u64,
    /// What holds it, the largest first; pinned blocks that are free are nobody's.
    pub by_category: Vec<(Category, u64)>,
}

impl HostMemory {
    /// The ranks of a machine, of so many in all, and what they hold together.
    pub fn of_machine(&self, world_size: u64) -> (u64, u64) {
        let ranks = world_size.clamp(1, GPUS_OF_A_MACHINE);
        (ranks, self.bytes().saturating_mul(ranks))
    }

    /// Pinned blocks that are free when most is held.
    pub fn unused_bytes(&self) -> u64 {
        self.bytes().saturating_sub(self.by_category.iter().map(|(_, bytes)| *bytes).sum())
    }

    /// All of it.
    pub const fn bytes(&self) -> u64 {
        self.pinned_bytes.saturating_add(self.pageable_bytes)
    }

    /// Replays what a process did on the host.
    pub fn of_trace(trace: &Trace) -> Self {
        let mut replay = Replay::default();
        trace.events.iter().for_each(|event| replay.apply(trace, *event));
        replay.most
    }
}

/// Bytes of a block of the caching host allocator (ATen/core/CachingHostAllocator.h, PyTorch 2.11: `PowerOf2Ceil`).
const fn pinned_block(bytes: u64) -> u64 {
    match bytes.checked_next_power_of_two() {
        Some(block) => block,
        None => u64::MAX,
    }
}

/// The host while its trace is replayed.
#[derive(Default)]
struct Replay {
    /// Free pinned blocks by their size.
    free: HashMap<u64, u64>,
    pinned: u64,
    pageable: u64,
    /// By `category as usize`.
    held: [u64; Category::ALL.len()],
    most: HostMemory,
}

impl Replay {
    fn apply(&mut self, trace: &Trace, event: Event) {
        let asked = |id: AllocationId| trace.allocations.get(id as usize).filter(|one| is_kept(one.category));
        match event {
            Event::Alloc(id) => {
                if let Some(one) = asked(id) {
                    self.take(one);
                }
            }
            Event::Free(id) => {
                if let Some(one) = asked(id) {
                    self.give_back(one);
                }
            }
            _ => {}
        }
    }

    fn take(&mut self, one: &Allocation) {
        let bytes = match HostKind::of_stream(one.stream) {
            HostKind::Pageable => {
                self.pageable = self.pageable.saturating_add(one.bytes);
                one.bytes
            }
            HostKind::Pinned => self.take_pinned(pinned_block(one.bytes)),
        };
        if let Some(held) = self.held.get_mut(one.category as usize) {
            *held = held.saturating_add(bytes);
        }
        if self.pinned.saturating_add(self.pageable) > self.most.bytes() {
            self.note_most();
        }
    }

    fn take_pinned(&mut self, block: u64) -> u64 {
        match self.free.get_mut(&block).filter(|count| **count > 0) {
            Some(count) => *count -= 1,
            None => self.pinned = self.pinned.saturating_add(block),
        }
        block
    }

    fn give_back(&mut self, one: &Allocation) {
        let bytes = match HostKind::of_stream(one.stream) {
            HostKind::Pageable => {
                self.pageable = self.pageable.saturating_sub(one.bytes);
                one.bytes
            }
            HostKind::Pinned => {
                let block = pinned_block(one.bytes);
                *self.free.entry(block).or_default() += 1;
                block
            }
        };
        if let Some(held) = self.held.get_mut(one.category as usize) {
            *held = held.saturating_sub(bytes);
        }
    }

    fn note_most(&mut self) {
        let held = Category::ALL.into_iter().zip(self.held).filter(|(_, bytes)| *bytes > 0);
        let mut by_category: Vec<(Category, u64)> = held.collect();
        by_category.small_sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        self.most = HostMemory { pinned_bytes: self.pinned, pageable_bytes: self.pageable, by_category };
    }
}

/// Whether it is what training keeps on the host; what an operator there needs while it runs is not counted.
const fn is_kept(category: Category) -> bool {
    matches!(
        category,
        Category::Parameter
            | Category::Gradient
            | Category::OptimizerState
            | Category::Activation
            | Category::Communication
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(bytes: u64, category: Category, kind: HostKind) -> Allocation {
        Allocation { category, stream: kind.stream(), ..Allocation::of_bytes(bytes) }
    }

    fn memory(allocations: Vec<Allocation>, events: Vec<Event>) -> HostMemory {
        HostMemory::of_trace(&Trace { allocations, events, ..Trace::default() })
    }

    #[test]
    fn pinned_blocks_are_powers_of_two_and_stay() {
        let gradient = |bytes| one(bytes, Category::Gradient, HostKind::Pinned);
        let [alloc, free] = [Event::Alloc, Event::Free];
        let events = vec![alloc(0), free(0), alloc(1), alloc(2), free(1), free(2)];
        let host = memory(vec![gradient(700), gradient(1024), gradient(3)], events);
        // The second takes the block of the first.
        assert_eq!((host.pinned_bytes, host.pageable_bytes), (1024 + 4, 0));
        assert_eq!(host.by_category, [(Category::Gradient, 1028)]);
    }

    #[test]
    fn pageable_memory_is_what_was_asked_for_when_it_is_most() {
        let allocations = vec![
            one(700, Category::Parameter, HostKind::Pageable),
            one(1400, Category::OptimizerState, HostKind::Pageable),
            one(9000, Category::Temporary, HostKind::Pageable),
            one(3, Category::Gradient, HostKind::Pageable),
        ];
        let [alloc, free] = [Event::Alloc, Event::Free];
        let host = memory(allocations, vec![alloc(0), alloc(1), alloc(2), free(0), alloc(3)]);
        assert_eq!((host.bytes(), host.pageable_bytes), (2100, 2100));
        assert_eq!(host.by_category, [(Category::OptimizerState, 1400), (Category::Parameter, 700)]);
    }
}
