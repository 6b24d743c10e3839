//! [`LongBins`]: bins that hold so many blocks that they are in a tree as well.
//!
//! A training job repeats its sizes, and its bins are short. A loop over tokens whose results all live till backward leaves thousands of
//! blocks of nearly the same size, of which each new one finds its place by a walk that misses the cache at every step.

use std::collections::BTreeMap;

use super::arena::{Arena, NIL};
use super::bins::{BINS, bin_of};

/// A walk of so many blocks makes a bin a long one.
pub(super) const LONG_WALK: u32 = 64;

/// The long bins of one stream. A bin stays long.
#[derive(Clone, Debug)]
pub(super) struct LongBins {
    bins: [u64; BINS / 64],
    /// The blocks of all long bins by size and address.
    blocks: BTreeMap<(u64, u64), u32>,
}

impl Default for LongBins {
    fn default() -> Self {
        Self { bins: [0; BINS / 64], blocks: BTreeMap::new() }
    }
}

impl LongBins {
    pub fn has(&self, bin: usize) -> bool {
        self.bins[bin / 64] & 1 << (bin % 64) != 0
    }

    /// Makes a bin a long one, whose blocks are linked from `first` on.
    pub fn add_bin(&mut self, arena: &Arena, bin: usize, first: u32) {
        self.bins[bin / 64] |= 1 << (bin % 64);
        let mut index = first;
        while index != NIL {
            self.blocks.insert(arena[index].order(), index);
            index = arena[index].larger;
        }
    }

    pub fn insert(&mut self, order: (u64, u64), index: u32) {
        self.blocks.insert(order, index);
    }

    pub fn remove(&mut self, order: (u64, u64)) {
        self.blocks.remove(&order);
    }

    /// The last block of this bin before `order`; [`NIL`] if there is none.
    pub fn last_before(&self, bin: usize, order: (u64, u64)) -> u32 {
        let before = self.blocks.range(..order).next_back();
        before.filter(|((size, _), _)| bin_of(*size) == bin).map_or(NIL, |(_, index)| *index)
    }

    /// The first block of this bin of at least `size` bytes; [`NIL`] if there is none.
    pub fn first_from(&self, bin: usize, size: u64) -> u32 {
        let from = self.blocks.range((size, 0)..).next();
        from.filter(|((size, _), _)| bin_of(*size) == bin).map_or(NIL, |(_, index)| *index)
    }
}

#[cfg(test)]
mod tests {
    use crate::arena::State;
    use crate::pool_kind::PoolKind;
    use crate::units::MIB;
    use crate::{AllocatorConfig, BlockId, CachingAllocator};

    /// The cached blocks of the large pool are all there, in order, and the smallest that is large enough is found.
    fn check_order(allocator: &CachingAllocator, sizes: &[u64]) {
        let (arena, pool) = (&allocator.arena, &allocator.pools[PoolKind::Large as usize]);
        let is_cached = |state: State, kind: PoolKind| state == State::Free && kind == PoolKind::Large;
        let cached = arena.iter().filter(|(_, block)| is_cached(block.state, block.pool));
        let mut by_size: Vec<_> = cached.map(|(index, block)| (block.order(), index)).collect();
        by_size.sort_unstable();
        let in_order: Vec<u32> = by_size.iter().map(|(_, index)| *index).collect();
        assert_eq!(pool.block_indices(arena), in_order);
        for size in sizes {
            let enough = by_size.iter().find(|((bytes, _), _)| bytes >= size).map_or(u32::MAX, |(_, index)| *index);
            assert_eq!(pool.lower_bound(arena, 0, *size), enough, "{size}");
        }
    }

    #[test]
    fn thousands_of_blocks_of_one_size_stay_in_order() {
        let mut allocator = CachingAllocator::new(AllocatorConfig::default(), None);
        let mut held: Vec<BlockId> = (0..600).map(|_| allocator.malloc(12 * MIB).unwrap()).collect();
        let mut state = 1_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        while held.len() > 100 {
            let at = next(held.len() as u64) as usize;
            allocator.free(held.swap_remove(at));
        }
        let sizes = [2 * MIB, 3 * MIB, 9 * MIB, 12 * MIB, 12 * MIB - 512, 40 * MIB];
        for step in 0..3000 {
            // As many are freed as are asked for, so that blocks are cut, grow and go.
            if next(2) == 0 || held.is_empty() {
                held.push(allocator.malloc(sizes[next(5) as usize] - 512 * next(4)).unwrap());
            } else {
                let at = next(held.len() as u64) as usize;
                allocator.free(held.swap_remove(at));
            }
            if step % 10 == 0 {
                check_order(&allocator, &sizes);
            }
        }
        assert!(allocator.pools[PoolKind::Large as usize].has_long_bins(), "no bin became a long one");
        allocator.empty_cache();
        check_order(&allocator, &sizes);
    }
}
