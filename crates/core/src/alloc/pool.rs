//! The free blocks of a pool, ordered by size and then address: the order best fit goes by.

use super::arena::Block;
use super::config::{MIN_BLOCK_SIZE, SMALL_SIZE};

/// Which pool a block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// Requests up to 1 MiB, cut from segments of 2 MiB.
    Small,
    /// Everything else.
    Large,
}

impl PoolKind {
    /// The pool for a block of `size` bytes.
    pub(super) fn of(size: u64) -> Self {
        if size <= SMALL_SIZE { Self::Small } else { Self::Large }
    }
}

/// Size, address and arena index in one number, so that one comparison orders free blocks.
/// Sizes and addresses are multiples of 512; sizes stay below 2^44 (see `ADDRESS_SPACE`), so 35, 61 and 32 bits hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u128);

impl Key {
    fn new(size: u64, addr: u64, index: u32) -> Self {
        Self(u128::from(size / MIN_BLOCK_SIZE) << 93 | u128::from(addr / MIN_BLOCK_SIZE) << 32 | u128::from(index))
    }

    fn of(index: u32, block: &Block) -> Self {
        Self::new(block.size, block.addr, index)
    }

    fn index(self) -> u32 {
        self.0 as u32
    }

    fn size(self) -> u64 {
        (self.0 >> 93) as u64 * MIN_BLOCK_SIZE
    }
}

/// A pool: its cached blocks, and the unmapped address space of its expandable segments.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    free: Vec<Key>,
    /// (address, arena index) of unmapped blocks, by address.
    unmapped: Vec<(u64, u32)>,
    /// How often the pool was searched (`get_free_blocks_call_count`); counts only under garbage collection.
    pub searches: u64,
}

impl Pool {
    /// Position of the smallest block of at least `size` bytes, the lowest address among equals.
    pub fn lower_bound(&self, size: u64) -> usize {
        let key = Key::new(size, 0, 0);
        self.free.partition_point(|k| *k < key)
    }

    /// Arena index and size of the block at `position`.
    pub fn at(&self, position: usize) -> Option<(u32, u64)> {
        self.free.get(position).map(|k| (k.index(), k.size()))
    }

    /// Arena indices in order.
    pub fn indices(&self) -> impl DoubleEndedIterator<Item = u32> {
        self.free.iter().map(|k| k.index())
    }

    pub fn insert(&mut self, index: u32, block: &mut Block) {
        block.cached_at = self.searches;
        let key = Key::of(index, block);
        let position = self.free.partition_point(|k| *k < key);
        self.free.insert(position, key);
    }

    pub fn remove_at(&mut self, position: usize) {
        self.free.remove(position);
    }

    pub fn remove(&mut self, index: u32, block: &Block) {
        if let Some(position) = self.position(index, block) {
            self.free.remove(position);
        }
    }

    pub fn position(&self, index: u32, block: &Block) -> Option<usize> {
        self.free.binary_search(&Key::of(index, block)).ok()
    }

    /// Removes the block at `position` and inserts another, moving only what lies between the two places.
    pub fn replace(&mut self, position: usize, index: u32, block: &mut Block) {
        block.cached_at = self.searches;
        let key = Key::of(index, block);
        if key < self.free[position] {
            let to = self.free[..position].partition_point(|k| *k < key);
            self.free.copy_within(to..position, to + 1);
            self.free[to] = key;
        } else {
            let to = position + self.free[position + 1..].partition_point(|k| *k < key);
            self.free.copy_within(position + 1..to + 1, position);
            self.free[to] = key;
        }
    }

    pub fn unmapped(&self) -> impl Iterator<Item = u32> {
        self.unmapped.iter().map(|(_, index)| *index)
    }

    pub fn insert_unmapped(&mut self, index: u32, block: &Block) {
        let position = self.unmapped.partition_point(|(addr, _)| *addr < block.addr);
        self.unmapped.insert(position, (block.addr, index));
    }

    pub fn remove_unmapped(&mut self, index: u32) {
        self.unmapped.retain(|(_, i)| *i != index);
    }
}
