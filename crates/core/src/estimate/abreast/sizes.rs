//! [`Sizes`]: what an allocation takes on each of several devices.

use crate::alloc::{MIN_BLOCK_SIZE, SMALL_SIZE};
use crate::trace::Allocation;
use crate::units::round_up;

/// Sizes by name, rounded as the allocator rounds them: two that are rounded to one are the same to it.
pub(in crate::estimate) struct Sizes {
    devices: usize,
    /// By name less one, then by device; empty where all devices have the trace's own.
    by_name: Vec<Vec<u64>>,
    differ_in_small_pool: Vec<bool>,
}

/// What an allocation takes.
pub(in crate::estimate) enum Size<'a> {
    /// The same on all devices.
    Same(u64),
    /// By device.
    Each(&'a [u64]),
}

/// Whether a request of a rounded size is served from the small pool.
pub(super) const fn is_small(rounded: u64) -> bool {
    rounded <= SMALL_SIZE
}

impl Sizes {
    /// Of each device its sizes by name less one.
    pub fn new(devices: &[Vec<u64>]) -> Self {
        let names = devices.iter().map(Vec::len).min().unwrap_or_default();
        let by_name: Vec<Vec<u64>> = (0..names)
            .map(|name| devices.iter().map(|sizes| round_up(sizes[name], MIN_BLOCK_SIZE)).collect())
            .collect();
        let in_small_pool = |size: &u64| if is_small(*size) { *size } else { 0 };
        let differ = |sizes: &Vec<u64>| sizes.iter().any(|size| in_small_pool(size) != in_small_pool(&sizes[0]));
        let differ_in_small_pool = by_name.iter().map(differ).collect();
        Self { devices: devices.len(), by_name, differ_in_small_pool }
    }

    pub fn devices(&self) -> usize {
        self.devices
    }

    pub fn of(&self, allocation: &Allocation) -> Size<'_> {
        match (allocation.sizes as usize).checked_sub(1).and_then(|name| self.by_name.get(name)) {
            Some(sizes) if sizes.iter().any(|size| *size != sizes[0]) => Size::Each(sizes),
            Some(sizes) => Size::Same(sizes[0]),
            None => Size::Same(round_up(allocation.bytes, MIN_BLOCK_SIZE)),
        }
    }

    /// Whether the small pools of devices would serve this differently.
    pub fn differ_in_small_pool(&self, allocation: &Allocation) -> bool {
        let name = (allocation.sizes as usize).checked_sub(1);
        name.and_then(|name| self.differ_in_small_pool.get(name)).is_some_and(|differ| *differ)
    }

    /// What this takes from the small pool of a device.
    pub fn small_size(&self, allocation: &Allocation, device: usize) -> u64 {
        let size = match self.of(allocation) {
            Size::Same(size) => size,
            Size::Each(sizes) => sizes[device],
        };
        if is_small(size) { size } else { 0 }
    }
}
