//! The free blocks of a pool, ordered by size and then address: the order best fit goes by.

use super::arena::{Arena, Block, NIL};
use super::bins::{BINS, bin_of};
use super::long_bins::{LONG_WALK, LongBins};

/// A pool: the cached blocks of every stream, and the unmapped address space of its expandable segments. A stream's
/// requests are served from its own blocks only.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    /// The main stream's blocks.
    main: Cached,
    /// The side streams' blocks, from stream 1 on.
    side: Vec<Cached>,
    /// (stream, address, arena index) of unmapped blocks, by stream and address.
    unmapped: Vec<(u8, u64, u32)>,
    /// How often the pool was searched (`get_free_blocks_call_count`); counts only under garbage collection.
    pub searches: u64,
}

/// The cached blocks of one stream.
///
/// They lie in bins by size; in a bin they are linked in order through the blocks themselves. A training job
/// repeats its sizes, so bins stay short, and taking a block out costs nothing; a bitmap finds the next bin that
/// holds anything. What every event calls is inlined by force: that is worth 5 % of a replay.
#[derive(Clone, Debug)]
struct Cached {
    /// First and last block of each bin.
    bins: Box<[[u32; 2]]>,
    occupied: [u64; BINS / 64],
    long: Option<Box<LongBins>>,
}

impl Default for Cached {
    fn default() -> Self {
        Self { bins: vec![[NIL; 2]; BINS].into_boxed_slice(), occupied: [0; BINS / 64], long: None }
    }
}

impl Pool {
    /// Makes room for the blocks of a stream.
    #[inline(always)]
    pub fn admit_stream(&mut self, stream: u8) {
        if stream as usize > self.side.len() {
            self.side.resize_with(stream as usize, Cached::default);
        }
    }

    /// Whether there is room for the blocks of a stream.
    pub fn is_admitted(&self, stream: u8) -> bool {
        stream as usize <= self.side.len()
    }

    /// The blocks of a stream; the main one's are reached without a detour.
    #[inline(always)]
    fn of_stream(&self, stream: u8) -> &Cached {
        match stream {
            0 => &self.main,
            _ => &self.side[stream as usize - 1],
        }
    }

    #[inline(always)]
    fn of_mut(&mut self, stream: u8) -> &mut Cached {
        match stream {
            0 => &mut self.main,
            _ => &mut self.side[stream as usize - 1],
        }
    }

    /// The smallest block of the stream of at least `size` bytes, the lowest address among equals; [`NIL`] if there is
    /// none.
    #[inline(always)]
    pub fn lower_bound(&self, arena: &Arena, stream: u8, size: u64) -> u32 {
        self.of_stream(stream).lower_bound(arena, size)
    }

    /// The next block of the same stream in order.
    pub fn first_after(&self, arena: &Arena, index: u32) -> u32 {
        let Block { larger, size, stream, .. } = arena[index];
        if larger == NIL { self.of_stream(stream).first_from(bin_of(size) + 1) } else { larger }
    }

    /// The largest block of the stream, the highest address among equals; [`NIL`] if there is none.
    pub fn largest_block(&self, stream: u8) -> u32 {
        let bins = self.of_stream(stream).bins.iter().rev().map(|[_, last]| *last);
        bins.into_iter().find(|last| *last != NIL).unwrap_or(NIL)
    }

    #[cfg(test)]
    pub fn has_long_bins(&self) -> bool {
        self.main.long.is_some()
    }

    /// Arena indices in order.
    pub fn block_indices(&self, arena: &Arena) -> Vec<u32> {
        let mut indices = Vec::new();
        for cached in std::iter::once(&self.main).chain(&self.side) {
            let mut index = cached.first_from(0);
            while index != NIL {
                indices.push(index);
                index = self.first_after(arena, index);
            }
        }
        indices
    }

    #[inline(always)]
    pub fn insert(&mut self, arena: &mut Arena, index: u32) {
        let block = &mut arena[index];
        block.cached_at = self.searches;
        self.of_mut(block.stream).insert(arena, index);
    }

    #[inline(always)]
    pub fn remove_block(&mut self, arena: &mut Arena, index: u32) {
        self.of_mut(arena[index].stream).remove_block(arena, index);
    }

    /// Before a block becomes larger or smaller: takes it out of a long bin, whose tree knows it as it is. Whether it did.
    #[inline(always)]
    pub fn lift_block(&mut self, arena: &mut Arena, index: u32) -> bool {
        if self.main.long.is_none() && self.side.is_empty() {
            return false;
        }
        let Block { stream, bin, .. } = arena[index];
        let cached = self.of_mut(stream);
        let is_lifted = cached.is_long(bin as usize);
        if is_lifted {
            cached.remove_block(arena, index);
        }
        is_lifted
    }

    /// Brings a block that has become larger or smaller to its place; mostly it is there already, unless it was lifted.
    #[inline(always)]
    pub fn reorder_block(&mut self, arena: &mut Arena, index: u32, is_lifted: bool) {
        if is_lifted {
            return self.insert(arena, index);
        }
        let block = &mut arena[index];
        block.cached_at = self.searches;
        let Block { addr, size, bin, smaller, larger, stream, .. } = *block;
        let follows = smaller == NIL || arena[smaller].order() < (size, addr);
        let precedes = larger == NIL || (size, addr) < arena[larger].order();
        if !(follows && precedes && bin_of(size) == bin as usize) {
            let cached = self.of_mut(stream);
            cached.remove_block(arena, index);
            cached.insert(arena, index);
        }
    }

    pub fn unmapped_blocks(&self, stream: u8) -> impl Iterator<Item = u32> {
        self.unmapped.iter().filter(move |(of, ..)| *of == stream).map(|(.., index)| *index)
    }

    pub fn insert_unmapped(&mut self, index: u32, block: &Block) {
        let order = (block.stream, block.addr);
        let position = self.unmapped.partition_point(|(stream, addr, _)| (*stream, *addr) < order);
        self.unmapped.insert(position, (block.stream, block.addr, index));
    }

    pub fn remove_unmapped(&mut self, index: u32) {
        self.unmapped.retain(|(.., i)| *i != index);
    }
}

impl Cached {
    /// The smallest block of at least `size` bytes, the lowest address among equals; [`NIL`] if there is none.
    #[inline(always)]
    fn lower_bound(&self, arena: &Arena, size: u64) -> u32 {
        let bin = bin_of(size);
        let mut index = self.bins[bin][0];
        match self.long_bins(bin) {
            Some(long) => index = long.first_from(bin, size),
            None => {
                while index != NIL && arena[index].size < size {
                    index = arena[index].larger;
                }
            }
        }
        if index == NIL { self.first_from(bin + 1) } else { index }
    }

    #[inline(always)]
    fn is_long(&self, bin: usize) -> bool {
        self.long_bins(bin).is_some()
    }

    /// The tree that the blocks of this bin are in, if they are.
    #[inline(always)]
    fn long_bins(&self, bin: usize) -> Option<&LongBins> {
        self.long.as_deref().filter(|long| long.has(bin))
    }

    /// The first block in this bin or a later one.
    #[inline(always)]
    fn first_from(&self, bin: usize) -> u32 {
        let mut word = bin / 64;
        let mut bits = self.occupied.get(word).copied().unwrap_or(0) & (u64::MAX << (bin % 64));
        while bits == 0 {
            word += 1;
            match self.occupied.get(word) {
                Some(next) => bits = *next,
                None => return NIL,
            }
        }
        self.bins[word * 64 + bits.trailing_zeros() as usize][0]
    }

    #[inline(always)]
    fn insert(&mut self, arena: &mut Arena, index: u32) {
        let block = &mut arena[index];
        let key = block.order();
        let number = bin_of(block.size);
        block.bin = number as u16;
        let bin = &mut self.bins[number];
        let [first, last] = *bin;
        if first == NIL {
            self.occupied[number / 64] |= 1 << (number % 64);
            *bin = [index; 2];
            (block.smaller, block.larger) = (NIL, NIL);
            self.note_in_tree(number, key, index);
            return;
        }
        let place = if self.is_long(number) { None } else { place_between(arena, first, last, key) };
        let (smaller, larger) = place.unwrap_or_else(|| self.place_in_tree(arena, number, key));
        (arena[index].smaller, arena[index].larger) = (smaller, larger);
        self.set_larger(arena, number, smaller, index);
        self.set_smaller(arena, number, larger, index);
        self.note_in_tree(number, key, index);
    }

    #[inline(always)]
    fn note_in_tree(&mut self, bin: usize, order: (u64, u64), index: u32) {
        if let Some(long) = &mut self.long
            && long.has(bin)
        {
            long.insert(order, index);
        }
    }

    /// The neighbours a block with this size and address has in a bin that is not empty, which is a long one from now on.
    #[inline(never)]
    fn place_in_tree(&mut self, arena: &Arena, bin: usize, order: (u64, u64)) -> (u32, u32) {
        let first = self.bins[bin][0];
        let long = self.long.get_or_insert_default();
        if !long.has(bin) {
            long.add_bin(arena, bin, first);
        }
        let smaller = long.last_before(bin, order);
        (smaller, if smaller == NIL { first } else { arena[smaller].larger })
    }

    #[inline(always)]
    fn remove_block(&mut self, arena: &mut Arena, index: u32) {
        let Block { bin, smaller, larger, .. } = arena[index];
        let number = bin as usize;
        if let Some(long) = &mut self.long
            && long.has(number)
        {
            long.remove(arena[index].order());
        }
        self.set_larger(arena, number, smaller, larger);
        self.set_smaller(arena, number, larger, smaller);
        if smaller == NIL && larger == NIL {
            self.occupied[number / 64] &= !(1 << (number % 64));
        }
    }

    /// `to` comes after `index` in the bin, or is its first block.
    #[inline(always)]
    fn set_larger(&mut self, arena: &mut Arena, bin: usize, index: u32, to: u32) {
        match index {
            NIL => self.bins[bin][0] = to,
            _ => arena[index].larger = to,
        }
    }

    /// `to` comes before `index` in the bin, or is its last block.
    #[inline(always)]
    fn set_smaller(&mut self, arena: &mut Arena, bin: usize, index: u32, to: u32) {
        match index {
            NIL => self.bins[bin][1] = to,
            _ => arena[index].smaller = to,
        }
    }
}

/// The neighbours a block with this size and address has in a bin, walking from the end that is likely nearer; `None` of a long walk.
#[inline(always)]
fn place_between(arena: &Arena, first: u32, last: u32, key: (u64, u64)) -> Option<(u32, u32)> {
    let order = |index: u32| arena[index].order();
    let (low, high) = (order(first), order(last));
    let mut walked = 0;
    // Halfway between the ends by size, or by address where all sizes are equal.
    let from_end = if low.0 == high.0 { key.1 > low.1.midpoint(high.1) } else { key.0 > low.0.midpoint(high.0) };
    if from_end {
        let mut smaller = last;
        while smaller != NIL && order(smaller) > key {
            smaller = arena[smaller].smaller;
            walked += 1;
        }
        return (walked < LONG_WALK).then(|| (smaller, if smaller == NIL { first } else { arena[smaller].larger }));
    }
    let mut larger = first;
    while larger != NIL && order(larger) < key {
        larger = arena[larger].larger;
        walked += 1;
    }
    (walked < LONG_WALK).then(|| (if larger == NIL { last } else { arena[larger].smaller }, larger))
}
