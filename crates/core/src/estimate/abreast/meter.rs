//! [`Meter`]: the counters of a device whose pools are replayed apart; [`Common`]: what all devices have alike.

use crate::alloc::growing::Place;
use crate::estimate::peaks::{Peaks, Reached, Tally};
use crate::trace::Phase;

/// Live small requests that are the same on all devices. Their ups and downs are counted once: a device hears of their
/// highest moment when something of its own changes.
#[derive(Default)]
pub(super) struct Common {
    live: u64,
    highest: u64,
    /// When that was.
    event: usize,
}

impl Common {
    pub fn take(&mut self, size: u64, event: usize) {
        self.live += size;
        if self.live > self.highest {
            (self.highest, self.event) = (self.live, event);
        }
    }

    pub fn give(&mut self, size: u64) {
        self.live -= size;
    }

    /// All devices have heard of the highest moment: the next stretch begins with what is alive at `event`.
    pub fn begin(&mut self, event: usize) {
        (self.highest, self.event) = (self.live, event);
    }
}

#[derive(Default)]
pub(super) struct Meter {
    /// Without what is common to all.
    allocated: u64,
    rounded512: u64,
    peak_allocated: u64,
    peak_rounded512: u64,
    peak_reserved: u64,
    in_small: u64,
    in_large: u64,
    tally: Tally,
}

impl Meter {
    /// What was common to all since it was heard of last.
    pub fn hear(&mut self, common: &Common) {
        self.peak_rounded512 = self.peak_rounded512.max(self.rounded512 + common.highest);
        let allocated = self.allocated + common.highest;
        if allocated > self.peak_allocated {
            self.peak_allocated = allocated;
            self.tally.rises(allocated, Place { event: common.event, back: 0 });
        }
    }

    /// A block of so many bytes is handed out, for a request of `rounded512`.
    pub fn take(&mut self, block: u64, rounded512: u64) {
        self.allocated += block;
        self.rounded512 += rounded512;
    }

    /// A block comes back.
    pub fn give(&mut self, block: u64, rounded512: u64) {
        self.allocated -= block;
        self.rounded512 -= rounded512;
    }

    /// What the driver gave to the small pool.
    pub fn holds_in_small(&mut self, bytes: u64) {
        self.in_small = bytes;
        self.note_reserved();
    }

    /// What the driver gave to the large pool.
    pub fn holds_in_large(&mut self, bytes: u64) {
        self.in_large = bytes;
        self.note_reserved();
    }

    fn note_reserved(&mut self) {
        self.peak_reserved = self.peak_reserved.max(self.in_small + self.in_large);
    }

    fn reached(&self, common: &Common) -> Reached {
        Reached {
            allocated: self.allocated + common.live,
            peak_allocated: self.peak_allocated,
            peak_reserved: self.peak_reserved,
            peak_rounded512: self.peak_rounded512,
        }
    }

    /// A phase begins: its peaks start from what is there.
    pub fn begin(&mut self, phase: Phase, common: &Common) {
        self.tally.begin(phase, self.reached(common));
        self.peak_allocated = self.allocated + common.live;
        self.peak_rounded512 = self.rounded512 + common.live;
        self.peak_reserved = self.in_small + self.in_large;
    }

    /// The figures.
    pub fn finish(self, common: &Common, reserved_by_stream: Vec<u64>) -> Peaks {
        let reached = self.reached(common);
        self.tally.finish(reached, reserved_by_stream)
    }
}
