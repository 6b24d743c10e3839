//! Asking the driver for segments and giving them back: garbage collection, release of cached blocks, retries.

use super::arena::{Block, NIL, State};
use super::caching::{CachingAllocator, OutOfMemory};
use super::config::SMALL_BUFFER;
use super::pool_kind::PoolKind;

impl CachingAllocator {
    /// Gives every segment without a live block back to the driver, as `torch.cuda.empty_cache` does.
    pub fn empty_cache(&mut self) {
        for kind in [PoolKind::Large, PoolKind::Small] {
            self.release_blocks(kind);
        }
    }

    /// A block for `size` bytes from the driver, after making room in PyTorch's order; not in the pool, not yet cut.
    #[cold]
    pub(super) fn new_block(
        &mut self,
        pool: (PoolKind, u8),
        size: u64,
        requested: u64,
    ) -> Result<u32, Box<OutOfMemory>> {
        if self.collects_garbage {
            self.collect_garbage();
        }
        let segment = self.config.segment_size(size);
        if let Some(index) = self.ask_driver(pool, size, segment) {
            return Ok(index);
        }
        if self.release_oversize(pool, size)
            && let Some(index) = self.ask_driver(pool, size, segment)
        {
            return Ok(index);
        }
        self.empty_cache();
        self.stats.num_alloc_retries += 1;
        self.ask_driver(pool, size, segment).ok_or_else(|| self.out_of_memory(requested, segment))
    }

    fn out_of_memory(&mut self, requested: u64, attempted: u64) -> Box<OutOfMemory> {
        self.stats.num_ooms += 1;
        Box::new(OutOfMemory {
            requested,
            attempted,
            allocated: self.stats.allocated,
            reserved: self.stats.reserved,
            capacity: self.capacity,
            free: self.capacity.saturating_sub(self.stats.reserved).saturating_sub(self.taken),
            allowed: self.allowed,
        })
    }

    /// One attempt to get a block (`alloc_block`).
    fn ask_driver(&mut self, pool: (PoolKind, u8), size: u64, segment: u64) -> Option<u32> {
        if self.allowed.is_some_and(|allowed| self.stats.reserved.saturating_add(segment) > allowed) {
            return None;
        }
        if self.config.expandable_segments {
            return self.expand_segment(pool, size);
        }
        if !self.device_has(segment) {
            return None;
        }
        let addr = self.take_addresses(segment, SMALL_BUFFER)?;
        self.stats.note_growth(segment);
        self.stats.segments += 1;
        if segment >= self.config.max_split_size() {
            self.stats.oversize_segments += 1;
        }
        Some(self.arena.add_block(Block::new(addr, segment, pool, State::Free)))
    }

    pub(super) fn device_has(&self, bytes: u64) -> bool {
        self.stats.reserved.saturating_add(self.taken).saturating_add(bytes) <= self.capacity
    }

    /// Gives back unsplit large blocks that have not been used for long (`garbage_collect_cached_blocks`).
    fn collect_garbage(&mut self) {
        let Some(allowed) = self.allowed else { return };
        let threshold = (self.config.garbage_collection_threshold * allowed as f64) as u64;
        let Some(target) = self.stats.reserved.checked_sub(threshold).filter(|t| *t > 0) else { return };
        let mut cached = self.unsplit_large_blocks();
        let mut total_age: u64 = cached.iter().map(|(_, age)| age).sum();
        let mut reclaimed = 0;
        // Expandable segments are never collected here, though they take part in the average.
        let collects = !self.config.expandable_segments;
        while collects && reclaimed < target && !cached.is_empty() {
            let average = total_age as f64 / cached.len() as f64;
            let (old, young): (Vec<_>, Vec<_>) = cached.into_iter().partition(|(_, age)| *age as f64 >= average);
            if old.is_empty() {
                return;
            }
            for (index, age) in old {
                total_age -= age;
                reclaimed += self.arena[index].size;
                self.release_block(index);
            }
            cached = young;
        }
    }

    /// Unsplit cached blocks of the large pool with their age in searches.
    fn unsplit_large_blocks(&self) -> Vec<(u32, u64)> {
        let pool = &self.pools[PoolKind::Large as usize];
        let unsplit = pool.block_indices(&self.arena).into_iter().filter(|i| !self.arena[*i].is_split());
        unsplit.map(|i| (i, pool.searches - self.arena[i].cached_at)).collect()
    }

    /// Gives back cached blocks of at least `max_split_size_mb` until `size` bytes are free
    /// (`release_available_cached_blocks`); false if that did not suffice.
    fn release_oversize(&mut self, (kind, stream): (PoolKind, u8), size: u64) -> bool {
        let oversize = self.config.max_split_size();
        if oversize == u64::MAX || self.config.expandable_segments {
            return false;
        }
        let wanted = size.max(oversize);
        let pool = &self.pools[kind as usize];
        let enough = pool.lower_bound(&self.arena, stream, wanted);
        if enough != NIL {
            self.release_block(enough);
            return true;
        }
        let mut released = 0;
        while released < wanted {
            let largest = self.pools[kind as usize].largest_block(stream);
            match self.arena.get(largest) {
                Some(block) if block.size >= oversize => released += block.size,
                _ => return false,
            }
            self.release_block(largest);
        }
        true
    }

    /// Gives back what a pool can spare (`release_blocks`).
    fn release_blocks(&mut self, kind: PoolKind) {
        for index in self.pools[kind as usize].block_indices(&self.arena) {
            if self.config.expandable_segments {
                self.unmap_pages(index);
            } else if !self.arena[index].is_split() {
                self.release_block(index);
            }
        }
    }

    /// Gives a whole segment back to the driver.
    fn release_block(&mut self, index: u32) {
        let Block { size, pool: kind, .. } = self.arena[index];
        self.pools[kind as usize].remove_block(&mut self.arena, index);
        self.arena.remove_block(index);
        self.stats.note_shrinking(size);
        self.stats.segments -= 1;
        if size >= self.config.max_split_size() {
            self.stats.oversize_segments -= 1;
        }
    }
}
