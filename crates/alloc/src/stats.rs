//! The allocator's counters, under the names of `torch.cuda.memory_stats()`.

/// Counters in bytes unless said otherwise; peaks are since the start or the last [`Stats::reset_peaks`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// `allocated_bytes.all.current`: live blocks, with what was not worth splitting off
    pub allocated: u64,
    /// `allocated_bytes.all.peak`
    pub peak_allocated: u64,
    /// `reserved_bytes.all.current`: what the driver gave
    pub reserved: u64,
    /// `reserved_bytes.all.peak`
    pub peak_reserved: u64,
    /// `requested_bytes.all.current`: what the program asked for
    pub requested: u64,
    /// `requested_bytes.all.peak`
    pub peak_requested: u64,
    /// Live requests, each rounded up to 512 bytes and nothing else; not a PyTorch counter
    pub rounded512: u64,
    /// Peak of [`Stats::rounded512`]
    pub peak_rounded512: u64,
    /// `inactive_split.all.current`: free blocks of partly used segments; expandable segments are not counted
    pub inactive_split: u64,
    /// `inactive_split_bytes.all.current`
    pub inactive_split_bytes: u64,
    /// `segment.all.current`: segments held; expandable segments are not counted
    pub segments: u64,
    /// `oversize_allocations.current`: live blocks of at least `max_split_size_mb`
    pub oversize_allocations: u64,
    /// `oversize_segments.current`
    pub oversize_segments: u64,
    /// `num_device_alloc`: calls to the driver for memory
    pub num_device_alloc: u64,
    /// `num_device_free`: calls to the driver that gave memory back
    pub num_device_free: u64,
    /// `num_alloc_retries`: second attempts after the cache was flushed
    pub num_alloc_retries: u64,
    /// `num_ooms`: requests that failed
    pub num_ooms: u64,
}

impl Stats {
    /// `active_bytes.all.current`. A block that another stream
    /// used (`record_stream`) is taken to be done with when it is freed, so it equals `allocated`.
    pub fn active(&self) -> u64 {
        self.allocated
    }

    /// Sets every peak to the current figure, as `torch.cuda.reset_peak_memory_stats` does.
    pub fn reset_peaks(&mut self) {
        self.peak_allocated = self.allocated;
        self.peak_reserved = self.reserved;
        self.peak_requested = self.requested;
        self.peak_rounded512 = self.rounded512;
    }

    /// These figures with each peak no lower than an earlier one.
    pub(super) fn with_peaks_of(mut self, earlier: &Self) -> Self {
        self.peak_allocated = self.peak_allocated.max(earlier.peak_allocated);
        self.peak_reserved = self.peak_reserved.max(earlier.peak_reserved);
        self.peak_requested = self.peak_requested.max(earlier.peak_requested);
        self.peak_rounded512 = self.peak_rounded512.max(earlier.peak_rounded512);
        self
    }

    pub(super) fn handed_out(&mut self, size: u64, requested: u64, rounded512: u64) {
        self.allocated += size;
        self.requested += requested;
        self.rounded512 += rounded512;
        self.peak_allocated = self.peak_allocated.max(self.allocated);
        self.peak_requested = self.peak_requested.max(self.requested);
        self.peak_rounded512 = self.peak_rounded512.max(self.rounded512);
    }

    pub(super) fn given_back(&mut self, size: u64, requested: u64, rounded512: u64) {
        self.allocated -= size;
        self.requested -= requested;
        self.rounded512 -= rounded512;
    }

    pub(super) fn note_growth(&mut self, bytes: u64) {
        self.reserved += bytes;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
        self.num_device_alloc += 1;
    }

    pub(super) fn note_shrinking(&mut self, bytes: u64) {
        self.reserved -= bytes;
        self.num_device_free += 1;
    }
}
