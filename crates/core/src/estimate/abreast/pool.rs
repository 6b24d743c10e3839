//! [`Pool`]: an allocator of which one pool is used, and the blocks it gave out; [`Slots`] number what is alive.

use crate::alloc::{AllocatorConfig, Arrangement, BlockId, CachingAllocator};

/// Live allocations by small numbers, so that tables of them stay small.
pub(super) struct Slots {
    of: Vec<u32>,
    free: Vec<u32>,
    /// By slot: its size where that is small and the same on all devices, else 0.
    sizes: Vec<u32>,
}

const NOT_ALIVE: u32 = u32::MAX;

impl Slots {
    /// For so many allocations.
    pub fn new(allocations: usize) -> Self {
        Self { of: vec![NOT_ALIVE; allocations], free: Vec::new(), sizes: Vec::new() }
    }

    /// A number for an allocation, of which `size` is remembered.
    pub fn take(&mut self, id: u32, size: u32) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.sizes.push(0);
            self.sizes.len() as u32 - 1
        });
        self.of[id as usize] = slot;
        self.sizes[slot as usize] = size;
        slot
    }

    /// The number of an allocation that dies, for others to have, and what was remembered.
    pub fn give(&mut self, id: u32) -> Option<(u32, u32)> {
        let slot = self.of[id as usize];
        if slot == NOT_ALIVE {
            return None;
        }
        self.of[id as usize] = NOT_ALIVE;
        self.free.push(slot);
        Some((slot, self.sizes[slot as usize]))
    }
}

#[derive(Clone)]
pub(super) struct Pool {
    allocator: CachingAllocator,
    /// By slot.
    blocks: Vec<BlockId>,
}

impl Pool {
    pub fn new() -> Self {
        Self { allocator: CachingAllocator::new(AllocatorConfig::default(), None), blocks: Vec::new() }
    }

    /// A block for `size` bytes; `None` when the address space is full.
    pub fn take(&mut self, slot: u32, stream: u8, size: u64) -> Option<()> {
        let slot = slot as usize;
        if slot >= self.blocks.len() {
            self.blocks.resize(slot + 1, BlockId::NONE);
        }
        self.blocks[slot] = self.allocator.malloc_on(stream, size).ok()?;
        Some(())
    }

    /// Frees what is in a slot, if anything.
    pub fn give(&mut self, slot: u32) {
        if let Some(block) = self.blocks.get_mut(slot as usize) {
            self.allocator.free(std::mem::replace(block, BlockId::NONE));
        }
    }

    /// What its live blocks hold together.
    pub fn allocated(&self) -> u64 {
        self.allocator.stats().allocated
    }

    pub fn empty_cache(&mut self) {
        self.allocator.empty_cache();
    }

    pub fn reserved(&self) -> u64 {
        self.allocator.stats().reserved
    }

    pub fn reserved_by_stream(&self) -> Vec<u64> {
        self.allocator.reserved_by_stream()
    }

    /// Whether a small request of so many bytes would be served from the cache.
    pub fn has_cached_small(&self, stream: u8, size: u64) -> bool {
        self.allocator.has_cached_small(stream, size)
    }

    pub fn arrangement(&self) -> Option<Arrangement> {
        self.allocator.arrangement()
    }
}
