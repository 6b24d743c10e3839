//! The segments and blocks of an allocator as `torch.cuda.memory_snapshot()` lists them, for a memory map.

use super::arena::{Block, NIL, State};
use super::caching::CachingAllocator;
use super::pool_kind::PoolKind;

/// Whether a block is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// `active_allocated`
    Allocated,
    /// `inactive`: cached
    Inactive,
}

/// One block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedBlock {
    /// Address; only differences and order mean something.
    pub address: u64,
    /// In bytes, rounded as the allocator rounds it.
    pub size: u64,
    /// What the program asked for; 0 when inactive.
    pub requested: u64,
    /// Whether it is in use.
    pub state: BlockState,
}

/// A contiguous range of device memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Address of the first block.
    pub address: u64,
    /// Bytes of all its blocks.
    pub total_size: u64,
    /// The pool it serves.
    pub pool: PoolKind,
    /// The stream whose requests it serves.
    pub stream: u8,
    /// Whether it belongs to an expandable segment.
    pub is_expandable: bool,
    /// Its blocks in address order, without gaps.
    pub blocks: Vec<MappedBlock>,
}

impl Segment {
    /// Bytes of its live blocks.
    pub fn allocated_size(&self) -> u64 {
        self.blocks.iter().filter(|b| b.state == BlockState::Allocated).map(|b| b.size).sum()
    }
}

impl CachingAllocator {
    /// All segments by address. An expandable segment shows as one segment for each mapped stretch.
    pub fn segments(&self) -> impl Iterator<Item = Segment> {
        let mut heads: Vec<&Block> = self.arena.iter().map(|(_, b)| b).filter(|b| self.is_head(b)).collect();
        heads.sort_unstable_by_key(|b| b.addr);
        heads.into_iter().map(|head| self.segment_at(head))
    }

    /// Reserved bytes of every stream, the main one first.
    pub fn reserved_by_stream(&self) -> Vec<u64> {
        let mut reserved = vec![0];
        for (_, block) in self.arena.iter().filter(|(_, block)| block.state != State::Unmapped) {
            let stream = block.stream as usize;
            if stream >= reserved.len() {
                reserved.resize(stream + 1, 0);
            }
            reserved[stream] += block.size;
        }
        reserved
    }

    fn is_head(&self, block: &Block) -> bool {
        let prev = self.arena.get(block.prev);
        block.state != State::Unmapped && prev.is_none_or(|b| b.state == State::Unmapped)
    }

    fn segment_at(&self, head: &Block) -> Segment {
        let mut blocks = Vec::new();
        let mut block = head;
        loop {
            blocks.push(mapped_block(block));
            match self.arena.get(block.next) {
                Some(next) if block.next != NIL && next.state != State::Unmapped => block = next,
                _ => break,
            }
        }
        Segment {
            address: head.addr,
            total_size: blocks.iter().map(|b| b.size).sum(),
            pool: head.pool,
            stream: head.stream,
            is_expandable: self.config.expandable_segments,
            blocks,
        }
    }
}

fn mapped_block(block: &Block) -> MappedBlock {
    let (state, requested) = match block.state {
        State::Allocated => (BlockState::Allocated, block.requested),
        _ => (BlockState::Inactive, 0),
    };
    MappedBlock { address: block.addr, size: block.size, requested, state }
}
