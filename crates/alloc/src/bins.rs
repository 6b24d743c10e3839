//! Bins of sizes, in which a pool keeps its cached blocks.

use super::config::MIN_BLOCK_SIZE;

/// How many bins of sizes a pool keeps: one for each multiple of 512 below 4 KiB, then 8 for each doubling, and 64 from
/// [`FINE`] on, up to 16 TiB. With more of them a block that shrinks or grows seldom keeps its place, with fewer the walks in
/// a bin get longer: a cache that grew with every token leaves thousands of segments of nearly the same size.
pub(super) const BINS: usize = 1472;
/// The first blocks of fine bins, as a power of two of units: 8 MiB.
const FINE: u32 = 14;
const COARSE_BINS: usize = (FINE as usize - 2) * 8;

/// The bin for blocks of `size` bytes; larger sizes never fall in a lower bin.
#[inline(always)]
pub(super) fn bin_of(size: u64) -> usize {
    let units = size / MIN_BLOCK_SIZE;
    if units < 8 {
        return units as usize;
    }
    let log2 = units.ilog2();
    if log2 < FINE {
        return (log2 as usize - 2) * 8 + (units >> (log2 - 3) & 7) as usize;
    }
    let bin = COARSE_BINS + (log2 - FINE) as usize * 64 + (units >> (log2 - 6) & 63) as usize;
    bin.min(BINS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_keep_the_order_of_sizes() {
        let sizes = (1..5000_u64).chain((13..55).flat_map(|log2| [(1 << log2) - 1, 1 << log2, (1 << log2) + 1]));
        let bins: Vec<usize> = sizes.map(|units| bin_of(units * MIN_BLOCK_SIZE)).collect();
        assert!(bins.is_sorted());
        assert_eq!(bin_of(u64::MAX), BINS - 1);
    }
}
