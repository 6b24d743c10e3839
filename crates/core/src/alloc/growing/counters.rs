//! What the replay of a growing stretch asks of the allocator, and tells it.

use crate::alloc::arena::BlockId;
use crate::alloc::caching::CachingAllocator;
use crate::alloc::config::MIN_BLOCK_SIZE;
use crate::alloc::pool::PoolKind;
use crate::units::round_up;

/// Bytes of the small pool more or less than when a section began: of its blocks, and as asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Level {
    pub block: i64,
    pub requested: i64,
}

impl Level {
    /// With a request of so many bytes, made (1) or given back (-1).
    pub fn plus(self, bytes: u64, sign: i64) -> Self {
        let block = round_up(bytes, MIN_BLOCK_SIZE) as i64;
        Self { block: self.block + sign * block, requested: self.requested + sign * bytes as i64 }
    }

    pub fn or_higher(self, other: Self) -> Self {
        Self { block: self.block.max(other.block), requested: self.requested.max(other.requested) }
    }
}

impl CachingAllocator {
    /// Whether small blocks are as large as their requests rounded to 512, and nothing depends on their age.
    pub(super) fn has_plain_settings(&self) -> bool {
        !self.config.expandable_segments
            && !self.collects_garbage
            && !self.rounds_to_divisions
            && self.max_split_size == u64::MAX
    }

    pub(super) fn address(&self, id: BlockId) -> u64 {
        self.arena.get(id.index()).map_or(0, |block| block.addr)
    }

    pub(super) fn is_in_small_pool(&self, id: BlockId) -> bool {
        self.arena.get(id.index()).is_some_and(|block| block.pool == PoolKind::Small)
    }

    /// Bytes that the driver would still give.
    pub(super) fn room(&self) -> u64 {
        let most = self.capacity.saturating_sub(self.taken);
        self.allowed.map_or(most, |allowed| allowed.min(most)).saturating_sub(self.stats.reserved)
    }

    /// The most that a request can take from the driver.
    pub(super) fn most_from_driver(&self, bytes: u64) -> u64 {
        self.config.segment_size(round_up(bytes, MIN_BLOCK_SIZE))
    }

    /// Small blocks come and go: their level, which is `from`, rises to `high` and comes to `to`. Returns the allocated
    /// bytes at their highest.
    pub(super) fn small_blocks_pass(&mut self, from: Level, high: Level, to: Level) -> u64 {
        let stats = &mut self.stats;
        let at = |now: u64, from: i64, level: i64| now.saturating_add_signed(level - from);
        let highest = at(stats.allocated, from.block, high.block);
        stats.peak_allocated = stats.peak_allocated.max(highest);
        stats.peak_rounded512 = stats.peak_rounded512.max(at(stats.rounded512, from.block, high.block));
        stats.peak_requested = stats.peak_requested.max(at(stats.requested, from.requested, high.requested));
        stats.allocated = at(stats.allocated, from.block, to.block);
        stats.rounded512 = at(stats.rounded512, from.block, to.block);
        stats.requested = at(stats.requested, from.requested, to.requested);
        highest
    }
}
