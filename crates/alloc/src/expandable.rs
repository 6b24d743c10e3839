//! Expandable segments: one range of addresses for each pool and stream, mapped page by page as it grows.

use super::arena::{Block, NIL, State};
use super::caching::CachingAllocator;
use super::config::SMALL_BUFFER;
use super::pool_kind::PoolKind;
use crate::units::round_up;

impl CachingAllocator {
    /// Moves past the block at the end of the mapped range: for best fit it counts as large as it could grow, so any
    /// other block that fits is taken first (`get_free_block`).
    #[inline(never)]
    pub(super) fn prefer_inner_block(&self, kind: PoolKind, mut index: u32) -> u32 {
        let pool = &self.pools[kind as usize];
        let mut room = self.expandable_size(index);
        loop {
            let next = pool.first_after(&self.arena, index);
            if next == NIL || self.expandable_size(next) >= room {
                return index;
            }
            (index, room) = (next, self.expandable_size(next));
        }
    }

    fn expandable_size(&self, index: u32) -> u64 {
        let block = &self.arena[index];
        let unmapped = self.arena.get(block.next).filter(|next| next.state == State::Unmapped);
        block.size + unmapped.map_or(0, |next| next.size)
    }

    /// A free block of at least `size` bytes, mapping as many pages as it takes (`try_allocate_expandable_block`).
    pub(super) fn expand_segment(&mut self, (kind, stream): (PoolKind, u8), size: u64) -> Option<u32> {
        let mut candidate = self.find_expandable(kind, stream, size)?;
        if self.arena[candidate].state == State::Unmapped {
            let bytes = size.min(self.arena[candidate].size);
            self.map_pages(candidate, bytes)?;
        }
        while self.arena[candidate].size < size {
            let missing = size - self.arena[candidate].size;
            let next = self.arena[candidate].next;
            let bytes = missing.min(self.arena[next].size);
            self.map_pages(next, bytes)?;
            candidate = next;
        }
        self.pools[kind as usize].remove_block(&mut self.arena, candidate);
        Some(candidate)
    }

    /// The lowest place where `size` bytes of free or unmapped addresses lie in a row; a new segment if there is none.
    fn find_expandable(&mut self, kind: PoolKind, stream: u8, size: u64) -> Option<u32> {
        for unmapped in self.pools[kind as usize].unmapped_blocks(stream) {
            let prev = self.arena[unmapped].prev;
            let start = if self.is_available(prev) { prev } else { unmapped };
            if self.has_room(start, size) {
                return Some(start);
            }
        }
        let page = self.page_bytes(kind);
        // PyTorch reserves addresses for 9/8 of the device, so that pages can move to the end of the segment.
        let space = round_up(self.capacity + self.capacity / 8, page);
        if space < size {
            return None;
        }
        let addr = self.take_addresses(space, page)?;
        let index = self.arena.add_block(Block::new(addr, space, (kind, stream), State::Unmapped));
        self.pools[kind as usize].insert_unmapped(index, &self.arena[index]);
        Some(index)
    }

    fn is_available(&self, index: u32) -> bool {
        self.arena.get(index).is_some_and(|b| b.state != State::Allocated)
    }

    fn has_room(&self, mut index: u32, size: u64) -> bool {
        let mut bytes = 0;
        while bytes < size && self.is_available(index) {
            bytes += self.arena[index].size;
            index = self.arena[index].next;
        }
        bytes >= size
    }

    /// 2 MiB in the small pool, 20 MiB (or `large_segment_size_mb`) in the large one.
    fn page_bytes(&self, kind: PoolKind) -> u64 {
        match kind {
            PoolKind::Small => SMALL_BUFFER,
            PoolKind::Large => self.config.large_segment_size(),
        }
    }

    /// Maps the first `bytes` of an unmapped block, in whole pages, and merges it with its free neighbours
    /// (`map_block`); `None` if the device has no more.
    fn map_pages(&mut self, index: u32, bytes: u64) -> Option<()> {
        let Block { addr, size, pool: kind, stream, next, .. } = self.arena[index];
        let mapped = round_up(bytes, self.page_bytes(kind));
        if !self.device_has(mapped) {
            return None;
        }
        self.pools[kind as usize].remove_unmapped(index);
        self.arena[index].state = State::Free;
        if mapped < size {
            let rest = self.arena.add_block(Block::new(addr + mapped, size - mapped, (kind, stream), State::Unmapped));
            self.arena[index].size = mapped;
            self.arena.link_neighbours(index, rest, next);
            self.pools[kind as usize].insert_unmapped(rest, &self.arena[rest]);
        }
        self.merge_neighbours(index);
        self.pools[kind as usize].insert(&mut self.arena, index);
        self.stats.note_growth(mapped);
        Some(())
    }

    /// Unmaps the whole pages of a free block (`unmap_block`); what is left at either end stays cached.
    pub(super) fn unmap_pages(&mut self, index: u32) {
        let Block { addr, size, pool: kind, stream, .. } = self.arena[index];
        let page = self.page_bytes(kind);
        let first = round_up(addr, page);
        let last = (addr + size) / page * page;
        if first >= last {
            return;
        }
        self.pools[kind as usize].remove_block(&mut self.arena, index);
        if first > addr {
            let before = self.keep_mapped(addr, first - addr, (kind, stream));
            let prev = self.arena[index].prev;
            self.arena.link_neighbours(prev, before, index);
        }
        if addr + size > last {
            let after = self.keep_mapped(last, addr + size - last, (kind, stream));
            let next = self.arena[index].next;
            self.arena.link_neighbours(index, after, next);
        }
        let block = &mut self.arena[index];
        (block.addr, block.size, block.state) = (first, last - first, State::Unmapped);
        self.merge_neighbours(index);
        self.stats.note_shrinking(last - first);
        if self.arena[index].is_split() {
            self.pools[kind as usize].insert_unmapped(index, &self.arena[index]);
        } else {
            self.arena.remove_block(index);
        }
    }

    fn keep_mapped(&mut self, addr: u64, size: u64, pool: (PoolKind, u8)) -> u32 {
        let index = self.arena.add_block(Block::new(addr, size, pool, State::Free));
        self.pools[pool.0 as usize].insert(&mut self.arena, index);
        index
    }

    /// Joins a block with neighbours in the same state; it must not be in its pool's lists.
    fn merge_neighbours(&mut self, index: u32) {
        for neighbour in [self.arena[index].prev, self.arena[index].next] {
            let Block { state, pool: kind, .. } = self.arena[index];
            if neighbour == NIL || self.arena[neighbour].state != state {
                continue;
            }
            match state {
                State::Unmapped => self.pools[kind as usize].remove_unmapped(neighbour),
                _ => self.pools[kind as usize].remove_block(&mut self.arena, neighbour),
            }
            self.arena.absorb_block(index, neighbour);
        }
    }
}
