//! [`Devices`]: the simulated device, and others on which the same program runs with other sizes here and there.
//!
//! Host code asks a device few questions, and most answers only size a workspace. What is asked is asked of the others as
//! well; a device that would answer with another program diverges, and must be simulated by itself.

use std::cell::{Cell, RefCell};

use crate::Device;

/// More devices than this are not told apart in one simulation.
const MOST_OTHERS: usize = 64;

/// The devices, and how sizes differ on them.
pub(super) struct Devices {
    own: Device,
    others: Vec<Device>,
    /// A bit for each of the others.
    diverged: Cell<u64>,
    /// A size for each device, wherever one differs.
    sizes: RefCell<Vec<Vec<u64>>>,
}

impl Devices {
    pub(super) fn new(own: Device, others: &[Device]) -> Self {
        let others = others.iter().take(MOST_OTHERS).copied().collect();
        Self { own, others, diverged: Cell::default(), sizes: RefCell::default() }
    }

    /// The device that is simulated.
    pub(super) const fn own(&self) -> Device {
        self.own
    }

    /// Whether the other device at this place answers the same so far.
    fn agrees(&self, at: usize) -> bool {
        self.diverged.get() & (1 << at) == 0
    }

    /// Those that answer the same so far, with their places.
    fn agreeing(&self) -> impl Iterator<Item = (usize, Device)> {
        self.others.iter().copied().enumerate().filter(|(at, _)| self.agrees(*at))
    }

    pub(super) fn diverges(&self, at: usize) {
        self.diverged.set(self.diverged.get() | (1 << at));
    }

    pub(super) fn ask<T: PartialEq>(&self, answer: impl Fn(Device) -> T) -> T {
        let own = answer(self.own);
        for (at, device) in self.agreeing() {
            if answer(device) != own {
                self.diverges(at);
            }
        }
        own
    }

    pub(super) fn ask_each<T>(&self, answer: impl Fn(Device) -> T) -> (T, Vec<(usize, T)>) {
        let others = self.agreeing().map(|(at, device)| (at, answer(device))).collect();
        (answer(self.own), others)
    }

    /// A name for the size that is `own`, and on some of the devices another: 0 where it is none.
    pub(super) fn name_sizes(&self, own: u64, on_others: &[(usize, u64)]) -> u32 {
        if on_others.iter().all(|(_, bytes)| *bytes == own) {
            return 0;
        }
        let mut found = vec![own; self.others.len()];
        on_others.iter().for_each(|(at, bytes)| found[*at] = *bytes);
        let mut sizes = self.sizes.borrow_mut();
        // What was asked lately is asked again.
        let known = sizes.iter().rposition(|other| *other == found).unwrap_or_else(|| {
            sizes.push(found);
            sizes.len() - 1
        });
        known as u32 + 1
    }

    /// The sizes on each of the others by their names less one; `None` of those that diverge.
    pub(super) fn take_sizes(&self) -> Vec<Option<Vec<u64>>> {
        let sizes = self.sizes.take();
        let of = |at: usize| sizes.iter().map(|on| on[at]).collect();
        (0..self.others.len()).map(|at| self.agrees(at).then(|| of(at))).collect()
    }
}
