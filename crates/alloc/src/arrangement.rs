//! How blocks lie in memory: two equal arrangements answer the same requests in the same way, so that a stretch of
//! requests which leaves the arrangement as it was does so every time.

use super::arena::State;
use super::caching::CachingAllocator;
use super::pool_kind::PoolKind;

/// The blocks of an allocator by address, those of each pool, and the first address that was never used.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Arrangement {
    small: Vec<(u64, u64, State)>,
    large: LargeArrangement,
}

/// How the blocks of the large pool lie, and the first address that was never used: while that stays, neither pool grows.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct LargeArrangement {
    blocks: Vec<(u64, u64, State)>,
    next_address: u64,
}

impl Arrangement {
    /// What says how the large pool answers: the small one serves no request of its.
    pub const fn large(&self) -> &LargeArrangement {
        &self.large
    }
}

impl CachingAllocator {
    /// How blocks lie now; `None` where answers depend on more than that (garbage collection goes by the age of blocks).
    pub fn arrangement(&self) -> Option<Arrangement> {
        if self.collects_garbage {
            return None;
        }
        let large = LargeArrangement { blocks: self.blocks_of(PoolKind::Large), next_address: self.next_address };
        Some(Arrangement { small: self.blocks_of(PoolKind::Small), large })
    }

    /// Address, bytes and state of each block of a pool.
    fn blocks_of(&self, pool: PoolKind) -> Vec<(u64, u64, State)> {
        let of_pool = self.arena.iter().filter(|(_, block)| block.pool == pool);
        let mut blocks: Vec<_> = of_pool.map(|(_, block)| (block.addr, block.size, block.state)).collect();
        blocks.sort_unstable_by_key(|(addr, ..)| *addr);
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AllocatorConfig;
    use crate::units::MIB;

    #[test]
    fn what_is_freed_in_place_leaves_the_arrangement_as_it_was() {
        let mut allocator = CachingAllocator::new(AllocatorConfig::default(), None);
        let mut arrangements = Vec::new();
        for _ in 0..3 {
            let blocks = [3, 5].map(|size| allocator.malloc(size * MIB).unwrap());
            blocks.into_iter().for_each(|block| allocator.free(block));
            arrangements.push(allocator.arrangement().unwrap());
        }
        assert_eq!(arrangements[0], arrangements[1]);
        assert_eq!(arrangements[1], arrangements[2]);
        allocator.malloc(MIB).unwrap();
        assert_ne!(allocator.arrangement().unwrap(), arrangements[2]);
    }

    #[test]
    fn garbage_collection_depends_on_more_than_the_arrangement() {
        let config = AllocatorConfig {
            garbage_collection_threshold: 0.5,
            per_process_memory_fraction: Some(0.5),
            ..AllocatorConfig::default()
        };
        assert_eq!(CachingAllocator::new(config, Some(64 * MIB)).arrangement(), None);
    }
}
