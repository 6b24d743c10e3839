//! [`CachingAllocator`]: finding, splitting and merging blocks.

use super::arena::{Arena, Block, BlockId, NIL, State};
use super::config::{AllocatorConfig, MIN_BLOCK_SIZE, SMALL_SIZE};
use super::pool::Pool;
use super::pool_kind::PoolKind;
use super::stats::Stats;
use crate::units::{Bytes, round_up};

/// What a device without a stated capacity holds: 16 TiB.
pub const ADDRESS_SPACE: u64 = 1 << 44;

/// A request that did not fit after every way to make room was tried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "out of memory: tried to allocate {} on a device of {}, of which {} is free; {} is allocated and {} is reserved \
     but unallocated",
    Bytes(*.attempted), Bytes(*.capacity), Bytes(*.free), Bytes(*.allocated), Bytes(.reserved.saturating_sub(*.allocated))
)]
pub struct OutOfMemory {
    /// Bytes the program asked for.
    pub requested: u64,
    /// Bytes of the segment that was asked of the driver ("Tried to allocate" in PyTorch's message).
    pub attempted: u64,
    /// `allocated` at that moment.
    pub allocated: u64,
    /// `reserved` at that moment, after the cache was flushed.
    pub reserved: u64,
    /// What the device has.
    pub capacity: u64,
    /// What the device has left.
    pub free: u64,
    /// What the process may hold, when a memory fraction is set.
    pub allowed: Option<u64>,
}

/// PyTorch's caching allocator on one device.
#[derive(Clone, Debug)]
pub struct CachingAllocator {
    pub(super) config: AllocatorConfig,
    pub(super) capacity: u64,
    /// Bytes of the device that PyTorch's allocator does not hold and cannot have.
    pub(super) taken: u64,
    pub(super) allowed: Option<u64>,
    pub(super) collects_garbage: bool,
    pub(super) max_split_size: u64,
    /// Whether sizes are rounded to more than a multiple of 512.
    pub(super) rounds_to_divisions: bool,
    pub(super) arena: Arena,
    pub(super) pools: [Pool; 2],
    pub(super) stats: Stats,
    pub(super) next_address: u64,
}

impl CachingAllocator {
    /// An empty allocator on a device of `capacity` bytes (what `torch.cuda.mem_get_info` calls total);
    /// without one, memory does not run out before 16 TiB.
    pub fn new(config: AllocatorConfig, capacity: Option<u64>) -> Self {
        let capacity = capacity.unwrap_or(ADDRESS_SPACE).min(ADDRESS_SPACE);
        let allowed = config.allowed_maximum(capacity);
        Self {
            capacity,
            taken: 0,
            allowed,
            collects_garbage: allowed.is_some() && config.garbage_collection_threshold > 0.0,
            max_split_size: config.max_split_size(),
            rounds_to_divisions: config.roundup_power2_divisions.iter().any(|divisions| *divisions > 1),
            config,
            arena: Arena::default(),
            pools: Default::default(),
            stats: Stats::default(),
            next_address: 0,
        }
    }

    /// The same on a device of which `bytes` are taken by others (the CUDA context): limits that PyTorch derives from the
    /// whole device, a fraction of it or the addresses of an expandable segment, stay.
    #[must_use]
    pub fn beside(self, bytes: u64) -> Self {
        Self { taken: bytes, ..self }
    }

    /// Allocates a block for `bytes`; zero bytes give [`BlockId::NONE`].
    ///
    /// # Errors
    /// When neither the cache nor the device has room, even after flushing the cache. Nothing is allocated then, but
    /// the cache is empty.
    pub fn malloc(&mut self, bytes: u64) -> Result<BlockId, Box<OutOfMemory>> {
        self.malloc_on(0, bytes)
    }

    /// [`CachingAllocator::malloc`] for another stream than the main one: free blocks are not shared among streams.
    ///
    /// # Errors
    /// As those of `malloc`.
    pub fn malloc_on(&mut self, stream: u8, bytes: u64) -> Result<BlockId, Box<OutOfMemory>> {
        if bytes == 0 {
            return Ok(BlockId::NONE);
        }
        let size =
            if self.rounds_to_divisions { self.config.round_size(bytes) } else { round_up(bytes, MIN_BLOCK_SIZE) };
        let kind = PoolKind::for_size(size);
        self.pools[kind as usize].admit_stream(stream);
        let index = match self.find_free(kind, stream, size) {
            NIL => {
                let index = self.new_block((kind, stream), size, bytes)?;
                self.cut_new(index, size);
                index
            }
            index => self.cut_cached(index, size),
        };
        Ok(self.hand_out(index, bytes))
    }

    /// Gives a block back to the cache. A handle that was freed before is ignored.
    pub fn free(&mut self, id: BlockId) {
        match self.arena.get(id.index()) {
            Some(b) if b.generation == id.generation() && b.state == State::Allocated => self.free_block(id.index()),
            _ => {}
        }
    }

    /// PyTorch's counters, as `torch.cuda.memory_stats` has them.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Sets every peak to the current figure.
    pub fn reset_peaks(&mut self) {
        self.stats.reset_peaks();
    }

    /// Bytes of a live block, 0 for any other handle.
    pub fn block_size(&self, id: BlockId) -> u64 {
        self.arena.get(id.index()).filter(|b| b.generation == id.generation()).map_or(0, |b| b.size)
    }

    /// Where a live block lies, 0 for any other handle.
    pub(super) fn block_address(&self, id: BlockId) -> u64 {
        self.arena.get(id.index()).filter(|b| b.generation == id.generation()).map_or(0, |b| b.addr)
    }

    /// The best cached block for `size` (`get_free_block`), or [`NIL`].
    fn find_free(&mut self, kind: PoolKind, stream: u8, size: u64) -> u32 {
        if self.collects_garbage {
            self.pools[kind as usize].searches += 1;
        }
        let mut index = self.pools[kind as usize].lower_bound(&self.arena, stream, size);
        if index == NIL {
            return NIL;
        }
        if self.config.expandable_segments {
            index = self.prefer_inner_block(kind, index);
        }
        let found = self.arena[index].size;
        let oversize = self.max_split_size;
        // Small requests must not sit in blocks that may not be split, and large ones not waste too much of them.
        let too_big = size < oversize && found >= oversize;
        let too_loose = size >= oversize && found >= size.saturating_add(self.config.max_non_split_rounding());
        if too_big || too_loose { NIL } else { index }
    }

    /// Takes a block of `size` bytes from the front of a cached one, or all of it; what is not needed stays cached.
    fn cut_cached(&mut self, index: u32, size: u64) -> u32 {
        let block = &self.arena[index];
        let Block { size: found, pool: kind, .. } = *block;
        let was_split = block.is_split();
        let splits = self.should_split(kind, found, size);
        match (splits, was_split) {
            _ if self.config.expandable_segments => {}
            (true, true) => self.stats.inactive_split_bytes -= size,
            (true, false) => self.count_new_rest(found - size),
            (false, true) => self.uncount_rest(found),
            (false, false) => {}
        }
        if splits {
            let is_lifted = self.pools[kind as usize].lift_block(&mut self.arena, index);
            let front = self.arena.cut_front(index, size);
            self.pools[kind as usize].reorder_block(&mut self.arena, index, is_lifted);
            return front;
        }
        self.pools[kind as usize].remove_block(&mut self.arena, index);
        index
    }

    /// Returns to the pool what a block fresh from the driver has too much.
    fn cut_new(&mut self, index: u32, size: u64) {
        let Block { size: found, pool: kind, .. } = self.arena[index];
        if !self.should_split(kind, found, size) {
            return;
        }
        let rest = self.split_block(index, size);
        self.pools[kind as usize].insert(&mut self.arena, rest);
        if !self.config.expandable_segments {
            self.count_new_rest(found - size);
        }
    }

    fn count_new_rest(&mut self, bytes: u64) {
        self.stats.inactive_split += 1;
        self.stats.inactive_split_bytes += bytes;
    }

    fn uncount_rest(&mut self, bytes: u64) {
        self.stats.inactive_split -= 1;
        self.stats.inactive_split_bytes -= bytes;
    }

    /// Whether the rest of a block is worth keeping apart (`should_split`).
    #[inline(always)]
    fn should_split(&self, kind: PoolKind, found: u64, size: u64) -> bool {
        let rest = found - size;
        if kind == PoolKind::Small || self.config.expandable_segments {
            rest >= MIN_BLOCK_SIZE
        } else {
            size < self.max_split_size && rest > SMALL_SIZE
        }
    }

    /// Shortens a block to `size`; the rest becomes a free block after it, not yet in the pool.
    fn split_block(&mut self, index: u32, size: u64) -> u32 {
        let Block { addr, size: whole, pool, stream, next, .. } = self.arena[index];
        let rest = self.arena.add_block(Block::new(addr + size, whole - size, (pool, stream), State::Free));
        self.arena[index].size = size;
        self.arena.link_neighbours(index, rest, next);
        rest
    }

    fn hand_out(&mut self, index: u32, bytes: u64) -> BlockId {
        let block = &mut self.arena[index];
        block.state = State::Allocated;
        block.requested = bytes;
        if block.size >= self.max_split_size {
            self.stats.oversize_allocations += 1;
        }
        self.stats.handed_out(block.size, bytes, round_up(bytes, MIN_BLOCK_SIZE));
        BlockId::new(index, block.generation)
    }

    /// Caches a block again, merged with its free neighbours (`free_block`).
    fn free_block(&mut self, index: u32) {
        let block = &mut self.arena[index];
        let Block { size, requested, prev, next, pool: kind, .. } = *block;
        block.state = State::Free;
        block.generation = block.generation.wrapping_add(1);
        self.stats.given_back(size, requested, round_up(requested, MIN_BLOCK_SIZE));
        if size >= self.max_split_size {
            self.stats.oversize_allocations -= 1;
        }
        let cached = match (self.cached_size(prev), self.cached_size(next)) {
            (None, None) => {
                self.pools[kind as usize].insert(&mut self.arena, index);
                index
            }
            (Some(_), None) => self.grow_cached(prev, index),
            (None, Some(_)) => self.grow_cached(next, index),
            // The larger one stays in the pool: it is the less likely to change its place there.
            (Some(before), Some(after)) if before > after => {
                self.take_over_cached(index, next);
                self.grow_cached(prev, index)
            }
            (Some(_), Some(_)) => {
                self.take_over_cached(index, prev);
                self.grow_cached(next, index)
            }
        };
        if !self.config.expandable_segments && self.arena[cached].is_split() {
            self.count_new_rest(self.arena[cached].size);
        }
    }

    /// The size of a block if it is cached.
    #[inline(always)]
    fn cached_size(&self, index: u32) -> Option<u64> {
        self.arena.get(index).filter(|block| block.state == State::Free).map(|block| block.size)
    }

    /// A cached block takes over its neighbour that was freed.
    fn grow_cached(&mut self, index: u32, freed: u32) -> u32 {
        let Block { size, pool: kind, .. } = self.arena[index];
        if !self.config.expandable_segments {
            self.uncount_rest(size);
        }
        let is_lifted = self.pools[kind as usize].lift_block(&mut self.arena, index);
        self.arena.absorb_block(index, freed);
        self.pools[kind as usize].reorder_block(&mut self.arena, index, is_lifted);
        index
    }

    /// A block that was freed takes over its neighbour that is cached.
    fn take_over_cached(&mut self, freed: u32, index: u32) {
        let Block { size, pool: kind, .. } = self.arena[index];
        if !self.config.expandable_segments {
            self.uncount_rest(size);
        }
        self.pools[kind as usize].remove_block(&mut self.arena, index);
        self.arena.absorb_block(freed, index);
    }

    /// Address space for a segment, ascending, a multiple of `alignment`. Addresses of released segments are not used
    /// again: which ones a driver would hand out is its own affair, and only the order among equal free blocks (or,
    /// with two expandable segments in one pool, which grows first) depends on it.
    pub(super) fn take_addresses(&mut self, size: u64, alignment: u64) -> Option<u64> {
        let addr = self.next_address.checked_next_multiple_of(alignment)?;
        self.next_address = addr.checked_add(size)?;
        Some(addr)
    }
}
