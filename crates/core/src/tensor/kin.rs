//! [`Kin`]: devices beside the simulated one on which the same program runs, with other sizes here and there.
//!
//! Host code asks a device few questions, and most answers only size a workspace. What is asked is asked of the kin as
//! well; a device that would answer with another program is estranged, and must be simulated by itself.

use std::cell::{Cell, RefCell};

use crate::gpu::Device;

/// More devices than this are not told apart in one simulation.
pub(super) const MOST_KIN: usize = 64;

/// The devices, and how sizes differ on them.
#[derive(Default)]
pub(super) struct Kin {
    devices: Vec<Device>,
    /// A bit for each.
    estranged: Cell<u64>,
    /// A size for each device, wherever one differs.
    sizes: RefCell<Vec<Vec<u64>>>,
}

impl Kin {
    pub(super) fn new(devices: &[Device]) -> Self {
        Self { devices: devices.iter().take(MOST_KIN).copied().collect(), ..Self::default() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// Those that answer the same so far, with their places.
    pub(super) fn close(&self) -> impl Iterator<Item = (usize, Device)> {
        self.devices.iter().copied().enumerate().filter(|(at, _)| self.estranged.get() & (1 << at) == 0)
    }

    pub(super) fn estrange(&self, at: usize) {
        self.estranged.set(self.estranged.get() | (1 << at));
    }

    /// A name for the size that is `own`, and on some of the devices another: 0 where it is none.
    pub(super) fn name_sizes(&self, own: u64, on_kin: &[(usize, u64)]) -> u32 {
        if on_kin.iter().all(|(_, bytes)| *bytes == own) {
            return 0;
        }
        let mut found = vec![own; self.devices.len()];
        on_kin.iter().for_each(|(at, bytes)| found[*at] = *bytes);
        let mut sizes = self.sizes.borrow_mut();
        // What was asked lately is asked again.
        let known = sizes.iter().rposition(|other| *other == found).unwrap_or_else(|| {
            sizes.push(found);
            sizes.len() - 1
        });
        known as u32 + 1
    }

    /// The sizes on each device by their names less one; `None` of those that are estranged.
    pub(super) fn take_sizes(&self) -> Vec<Option<Vec<u64>>> {
        let sizes = self.sizes.take();
        let of = |at: usize| sizes.iter().map(|on| on[at]).collect();
        let is_close = |at: usize| self.estranged.get() & (1 << at) == 0;
        (0..self.devices.len()).map(|at| is_close(at).then(|| of(at))).collect()
    }
}
