//! Blocks in one vector, linked by index: neighbours in a segment find each other without pointers.

use super::pool_kind::PoolKind;

/// No neighbour: the block is at the edge of its segment.
pub(super) const NIL: u32 = u32::MAX;

/// A handle to an allocated block. Cheap to copy; using it after the block was freed does nothing.
///
/// One number, not two: written in halves and read whole, each would wait for the store, a tenth of a replay's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockId(u64);

impl BlockId {
    /// What a request of zero bytes gets: no block. Freeing it does nothing.
    pub const NONE: Self = Self::new(NIL, 0);

    pub(super) const fn new(index: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | index as u64)
    }

    pub(super) const fn index(self) -> u32 {
        self.0 as u32
    }

    pub(super) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    /// Cached, in its pool's free list.
    Free,
    /// Handed out to a request.
    Allocated,
    /// Address space of an expandable segment without memory behind it.
    Unmapped,
    /// The slot holds no block.
    Vacant,
}

/// A block fills one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Block {
    pub addr: u64,
    pub size: u64,
    /// What the program asked for; meaningful while allocated.
    pub requested: u64,
    /// The pool's search count when the block was last cached, for the age in garbage collection.
    pub cached_at: u64,
    pub prev: u32,
    pub next: u32,
    /// Neighbours in the free list of the pool; meaningful while free.
    pub smaller: u32,
    pub larger: u32,
    /// Counts the lives of this slot, so that an old handle is recognised.
    pub generation: u32,
    /// The bin of the pool that it lies in; meaningful while free.
    pub bin: u16,
    pub state: State,
    pub pool: PoolKind,
    /// The stream whose requests it serves.
    pub stream: u8,
}

impl Block {
    #[inline(always)]
    pub fn new(addr: u64, size: u64, (pool, stream): (PoolKind, u8), state: State) -> Self {
        Self {
            addr,
            size,
            requested: 0,
            cached_at: 0,
            prev: NIL,
            next: NIL,
            smaller: NIL,
            larger: NIL,
            generation: 0,
            bin: 0,
            state,
            pool,
            stream,
        }
    }

    /// What the cached blocks of a pool are ordered by.
    #[inline(always)]
    pub fn order(&self) -> (u64, u64) {
        (self.size, self.addr)
    }

    #[inline(always)]
    pub fn is_split(&self) -> bool {
        self.prev != NIL || self.next != NIL
    }
}

/// Room for so many blocks is made in advance: what a model of a few dozen layers holds at once.
const EXPECTED_BLOCKS: usize = 1 << 11;

/// All blocks of one allocator.
#[derive(Clone, Debug)]
pub(super) struct Arena {
    blocks: Vec<Block>,
    vacant: Vec<u32>,
}

impl Default for Arena {
    fn default() -> Self {
        Self { blocks: Vec::with_capacity(EXPECTED_BLOCKS), vacant: Vec::new() }
    }
}

impl Arena {
    #[inline(always)]
    pub fn add_block(&mut self, block: Block) -> u32 {
        if let Some(index) = self.vacant.pop() {
            let generation = self[index].generation;
            self[index] = Block { generation, ..block };
            return index;
        }
        self.blocks.push(block);
        self.blocks.len() as u32 - 1
    }

    #[inline(always)]
    pub fn remove_block(&mut self, index: u32) {
        let block = &mut self[index];
        block.state = State::Vacant;
        block.generation = block.generation.wrapping_add(1);
        self.vacant.push(index);
    }

    #[inline(always)]
    pub fn get(&self, index: u32) -> Option<&Block> {
        self.blocks.get(index as usize)
    }

    /// Puts `index` between `prev` and `next`, either of which may be [`NIL`].
    #[inline(always)]
    pub fn link_neighbours(&mut self, prev: u32, index: u32, next: u32) {
        self[index].prev = prev;
        self[index].next = next;
        if prev != NIL {
            self[prev].next = index;
        }
        if next != NIL {
            self[next].prev = index;
        }
    }

    /// Makes the first `size` bytes of a block a block of its own.
    #[inline(always)]
    pub fn cut_front(&mut self, index: u32, size: u64) -> u32 {
        let Block { addr, prev, pool, stream, .. } = self[index];
        let front = self.add_block(Block::new(addr, size, (pool, stream), State::Free));
        self.link_neighbours(prev, front, index);
        let rest = &mut self[index];
        rest.addr += size;
        rest.size -= size;
        front
    }

    /// `dst` takes over its neighbour `src`, whose slot becomes vacant.
    pub fn absorb_block(&mut self, dst: u32, src: u32) {
        let Block { addr, size, prev, next, .. } = self[src];
        if self[dst].prev == src {
            self[dst].addr = addr;
            let after = self[dst].next;
            self.link_neighbours(prev, dst, after);
        } else {
            let before = self[dst].prev;
            self.link_neighbours(before, dst, next);
        }
        self[dst].size += size;
        self.remove_block(src);
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Block)> {
        self.blocks.iter().enumerate().filter(|(_, b)| b.state != State::Vacant).map(|(i, b)| (i as u32, b))
    }
}

impl std::ops::Index<u32> for Arena {
    type Output = Block;
    #[inline(always)]
    fn index(&self, index: u32) -> &Block {
        let blocks: &[Block] = &self.blocks;
        &blocks[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Arena {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut Block {
        let blocks: &mut [Block] = &mut self.blocks;
        &mut blocks[index as usize]
    }
}
