//! The settings of `PYTORCH_ALLOC_CONF`, under their own names, and the sizes that follow from them.

use crate::units::{MIB, round_up};

/// Every block is a multiple of this (`kMinBlockSize`, c10/core/AllocatorConfig.h, 2.11).
pub(crate) const MIN_BLOCK_SIZE: u64 = 512;
/// The largest request of the small pool (`kSmallSize`).
pub(super) const SMALL_SIZE: u64 = MIB;
/// Segment size of the small pool (`kSmallBuffer`).
pub(super) const SMALL_BUFFER: u64 = 2 * MIB;
/// Requests from here on get a segment of their own size (`kMinLargeAlloc`).
pub(super) const MIN_LARGE_ALLOC: u64 = 10 * MIB;
/// What such a segment is rounded up to (`kRoundLarge`).
pub(super) const ROUND_LARGE: u64 = 2 * MIB;
/// Default segment of the large pool (`large_segment_size_`).
pub(super) const LARGE_SEGMENT: u64 = 20 * MIB;

/// How many size intervals `roundup_power2_divisions` knows: 1 MiB to 64 GiB (`kRoundUpPowerOfTwoIntervals`).
pub(super) const ROUNDUP_INTERVALS: usize = 16;

/// Allocator settings; the default is PyTorch's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllocatorConfig {
    /// `expandable_segments`
    pub expandable_segments: bool,
    /// `max_split_size_mb`, in MiB; larger blocks are never split
    pub max_split_size_mb: Option<u64>,
    /// `max_non_split_rounding_mb`, in MiB; `None` follows the large segment size
    pub max_non_split_rounding_mb: Option<u64>,
    /// `large_segment_size_mb`, in MiB; `None` is 20
    pub large_segment_size_mb: Option<u64>,
    /// `roundup_power2_divisions`: entry `i` is for sizes from `2^i` MiB to twice that (the first also for all smaller
    /// sizes, the last for all larger); 0 and 1 are off
    pub roundup_power2_divisions: [u64; ROUNDUP_INTERVALS],
    /// `garbage_collection_threshold`, 0 to 1; 0 is off. Works only together with a memory fraction
    pub garbage_collection_threshold: f64,
    /// `per_process_memory_fraction`, as `torch.cuda.set_per_process_memory_fraction` sets it; `None` or 1 is no limit
    pub per_process_memory_fraction: Option<f64>,
}

impl AllocatorConfig {
    /// The default with `expandable_segments:True`.
    pub fn expandable() -> Self {
        Self { expandable_segments: true, ..Self::default() }
    }

    /// The block size for a request (`round_size`).
    pub fn round_size(&self, bytes: u64) -> u64 {
        if bytes < MIN_BLOCK_SIZE {
            return MIN_BLOCK_SIZE;
        }
        let divisions = self.roundup_power2_divisions[roundup_interval(bytes)];
        if divisions > 1 && bytes > MIN_BLOCK_SIZE.saturating_mul(divisions) {
            return next_division(bytes, divisions);
        }
        round_up(bytes, MIN_BLOCK_SIZE)
    }

    /// The segment a block of `size` bytes would be cut from (`get_allocation_size`).
    pub(super) fn segment_size(&self, size: u64) -> u64 {
        match size {
            n if n <= SMALL_SIZE => SMALL_BUFFER,
            n if n < MIN_LARGE_ALLOC => self.large_segment_size(),
            n => round_up(n, ROUND_LARGE),
        }
    }

    pub(super) fn large_segment_size(&self) -> u64 {
        self.large_segment_size_mb.map_or(LARGE_SEGMENT, mib)
    }

    pub(super) fn max_split_size(&self) -> u64 {
        self.max_split_size_mb.map_or(u64::MAX, mib)
    }

    pub(super) fn max_non_split_rounding(&self) -> u64 {
        self.max_non_split_rounding_mb.map_or(self.large_segment_size(), mib)
    }

    /// What the process may hold, when a fraction of `capacity` is set. A fraction of 1 sets no limit (seen in 2.11).
    pub(super) fn allowed_maximum(&self, capacity: u64) -> Option<u64> {
        self.per_process_memory_fraction.filter(|f| *f < 1.0).map(|f| (f * capacity as f64) as u64)
    }
}

fn mib(n: u64) -> u64 {
    n.saturating_mul(MIB)
}

/// Which interval of `roundup_power2_divisions` a size falls in.
fn roundup_interval(bytes: u64) -> usize {
    let log2_mib = (bytes / MIB).max(1).ilog2() as usize;
    log2_mib.min(ROUNDUP_INTERVALS - 1)
}

/// `bytes` rounded up to the next of `divisions` equal steps between two powers of two
/// (`roundup_power2_next_division`); `divisions` is a power of two.
fn next_division(bytes: u64, divisions: u64) -> u64 {
    if bytes.is_power_of_two() {
        return bytes;
    }
    let floor = 1_u64 << bytes.ilog2();
    match floor >> divisions.ilog2() {
        0 => floor.saturating_mul(2),
        step => round_up(bytes, step),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_as_torch_does() {
        let default = AllocatorConfig::default();
        for (bytes, size) in [(1, 512), (512, 512), (513, 1024), (u64::MAX, u64::MAX)] {
            assert_eq!(default.round_size(bytes), size, "{bytes}");
        }
        let four = AllocatorConfig { roundup_power2_divisions: [4; 16], ..Default::default() };
        for (bytes, size) in [(1200, 1536), (2049, 2560), (2560, 2560), (5 * MIB + 1, 6 * MIB), (MIB, MIB)] {
            assert_eq!(four.round_size(bytes), size, "{bytes}");
        }
    }

    #[test]
    fn segments_follow_the_three_size_classes() {
        let config = AllocatorConfig::default();
        for (size, segment) in [(512, 2), (MIB, 2), (MIB + 512, 20), (10 * MIB, 10), (11 * MIB, 12)] {
            assert_eq!(config.segment_size(size), segment * MIB, "{size}");
        }
    }
}
