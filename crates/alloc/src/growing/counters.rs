//! What the replay of a growing stretch asks of the allocator, and tells it.

use crate::arena::{BlockId, NIL};
use crate::caching::CachingAllocator;
use crate::config::{LARGE_SEGMENT, MIN_BLOCK_SIZE};
use crate::pool_kind::PoolKind;
use crate::stats::Stats;
use crate::units::round_up;

/// Bytes of the small pool more or less than when a section began: of its blocks, as asked for, and rounded to 512.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Level {
    pub block: i64,
    pub requested: i64,
    pub rounded512: i64,
}

impl Level {
    /// With a request of so many bytes, made (1) or given back (-1).
    pub fn plus_bytes(self, bytes: u64, sign: i64) -> Self {
        self.plus_block(round_up(bytes, MIN_BLOCK_SIZE), bytes, sign)
    }

    /// With a block for a request of so many bytes.
    pub fn plus_block(self, block: u64, bytes: u64, sign: i64) -> Self {
        let rounded512 = round_up(bytes, MIN_BLOCK_SIZE);
        let sum = |before: i64, bytes: u64| before + sign * bytes as i64;
        Self {
            block: sum(self.block, block),
            requested: sum(self.requested, bytes),
            rounded512: sum(self.rounded512, rounded512),
        }
    }

    pub fn or_higher(self, other: Self) -> Self {
        Self {
            block: self.block.max(other.block),
            requested: self.requested.max(other.requested),
            rounded512: self.rounded512.max(other.rounded512),
        }
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

    /// The size of the block for a request, and whether that is the small pool's.
    pub(super) fn block_for(&self, bytes: u64) -> (u64, bool) {
        let block = self.config.round_size(bytes);
        (block, PoolKind::for_size(block) == PoolKind::Small)
    }

    /// What was asked for with a live block of the small pool.
    pub(super) fn small_request(&self, id: BlockId) -> Option<u64> {
        self.arena.get(id.index()).filter(|block| block.pool == PoolKind::Small).map(|block| block.requested)
    }

    /// Whether this may take more from the driver than it has at once: then cached blocks of both pools go.
    pub(super) fn may_flush(&self, stream: u8, bytes: u64) -> bool {
        let size = self.config.round_size(bytes);
        // Mostly there is room, and the walk through what is cached is the longer one.
        if self.room() >= self.config.segment_size(size).saturating_add(LARGE_SEGMENT) {
            return false;
        }
        let pool = &self.pools[PoolKind::for_size(size) as usize];
        let is_cached = self.max_split_size == u64::MAX
            && pool.is_admitted(stream)
            && pool.lower_bound(&self.arena, stream, size) != NIL;
        !is_cached
    }

    /// Does something of which the counters of what is allocated have been told.
    pub(super) fn run_uncounted<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        let Stats { allocated, peak_allocated, requested, peak_requested, rounded512, peak_rounded512, .. } =
            self.stats;
        let done = run(self);
        let stats = std::mem::take(&mut self.stats);
        self.stats =
            Stats { allocated, peak_allocated, requested, peak_requested, rounded512, peak_rounded512, ..stats };
        done
    }

    /// Small blocks come and go: their level, which is `from`, rises to `high` and comes to `to`. Returns the allocated
    /// bytes at their highest.
    pub(super) fn small_blocks_pass(&mut self, from: Level, high: Level, to: Level) -> u64 {
        let stats = &mut self.stats;
        let at = |now: u64, from: i64, level: i64| now.saturating_add_signed(level - from);
        let highest = at(stats.allocated, from.block, high.block);
        stats.peak_allocated = stats.peak_allocated.max(highest);
        stats.peak_rounded512 = stats.peak_rounded512.max(at(stats.rounded512, from.rounded512, high.rounded512));
        stats.peak_requested = stats.peak_requested.max(at(stats.requested, from.requested, high.requested));
        stats.allocated = at(stats.allocated, from.block, to.block);
        stats.rounded512 = at(stats.rounded512, from.rounded512, to.rounded512);
        stats.requested = at(stats.requested, from.requested, to.requested);
        highest
    }
}
