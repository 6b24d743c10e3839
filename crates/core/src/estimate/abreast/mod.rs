//! [`peaks_abreast`]: the peaks of one trace on several devices, on which it has other sizes here and there, in one pass.
//!
//! The allocator's pools never exchange blocks, so the large and the small one are replayed apart. Each device has its large
//! pool to itself. Small requests are nine in ten, and there devices share one pool for as long as its blocks lie the same on
//! all of them: see [`small`].

mod meter;
mod pool;
mod sizes;
mod small;
mod stretch;
#[cfg(test)]
mod tests;

use meter::{Common, Meter};
use pool::{Pool, Slots};
pub(super) use sizes::Sizes;
use sizes::{Size, is_small};
use small::SmallPools;

use super::peaks::Peaks;
use crate::alloc::AllocatorConfig;
use crate::trace::{Allocation, Event, Trace};

/// Replays `trace` on devices that never run out, and returns the peaks of each. `None` where that cannot be done at once:
/// with settings under which pools or sizes are not what they are by default, with stretches that repeat themselves, or when
/// the address space is full.
pub(super) fn peaks_abreast(trace: &Trace, config: &AllocatorConfig, sizes: &Sizes) -> Option<Vec<Peaks>> {
    if *config != AllocatorConfig::default() || !trace.repeats.is_empty() || !trace.growing.is_empty() {
        return None;
    }
    let mut pass = Abreast::new(trace, sizes);
    for (index, event) in trace.events.iter().enumerate() {
        pass.event(index, *event)?;
    }
    Some(pass.finish())
}

/// What a device has to itself.
struct OnDevice {
    large: Pool,
    meter: Meter,
}

struct Abreast<'a> {
    trace: &'a Trace,
    sizes: &'a Sizes,
    devices: Vec<OnDevice>,
    common: Common,
    small: SmallPools,
    slots: Slots,
    /// The event after the stretch that is going on, in which devices are served with sizes of another.
    stretch_until: Option<usize>,
}

impl<'a> Abreast<'a> {
    fn new(trace: &'a Trace, sizes: &'a Sizes) -> Self {
        let devices = (0..sizes.devices()).map(|_| OnDevice { large: Pool::new(), meter: Meter::default() });
        Self {
            trace,
            sizes,
            devices: devices.collect(),
            common: Common::default(),
            small: SmallPools::new(sizes.devices()),
            slots: Slots::new(trace.allocations.len()),
            stretch_until: None,
        }
    }

    fn event(&mut self, index: usize, event: Event) -> Option<()> {
        match event {
            Event::Alloc(id) => self.alloc(index, id)?,
            Event::Free(id) => self.free(index, id),
            Event::Phase(at) => {
                self.tell_common(index);
                for device in &mut self.devices {
                    device.meter.begin(self.trace.phases[at as usize], &self.common);
                }
            }
            Event::EmptyCache => {
                self.small.empty_cache();
                self.devices.iter_mut().for_each(|device| device.large.empty_cache());
                self.note_reserved();
            }
            Event::Repeat(_) | Event::Growing(_) => return None,
        }
        if self.stretch_until == Some(index + 1) {
            self.stretch_until = None;
            self.small.rejoin();
        }
        Some(())
    }

    fn alloc(&mut self, index: usize, id: u32) -> Option<()> {
        let asked = &self.trace.allocations[id as usize];
        match self.sizes.of(asked) {
            Size::Same(size) if is_small(size) => {
                self.common.take(size, index);
                let slot = self.slots.take(id, size as u32);
                self.alloc_small((slot, asked.stream), |_| size)
            }
            Size::Same(size) => {
                self.tell_common(index);
                let slot = self.slots.take(id, 0);
                self.alloc_large((slot, asked.stream), |_| size)
            }
            Size::Each(sizes) => {
                self.tell_common(index);
                self.agree_on_small_pools(index, asked);
                let small = |device: usize| if is_small(sizes[device]) { sizes[device] } else { 0 };
                for (at, device) in self.devices.iter_mut().enumerate() {
                    device.meter.take(small(at), small(at));
                }
                let at = (self.slots.take(id, 0), asked.stream);
                self.alloc_small(at, small)?;
                self.alloc_large(at, |device| sizes[device] - small(device))
            }
        }
    }

    fn alloc_small(&mut self, (slot, stream): (u32, u8), size: impl Fn(usize) -> u64) -> Option<()> {
        if self.small.take(slot, stream, size)? {
            self.note_reserved();
        }
        Some(())
    }

    /// Takes a block from the large pool of every device on which the size is not 0.
    fn alloc_large(&mut self, (slot, stream): (u32, u8), size: impl Fn(usize) -> u64) -> Option<()> {
        for (at, device) in self.devices.iter_mut().enumerate() {
            let size = size(at);
            if size > 0 {
                let before = device.large.allocated();
                device.large.take(slot, stream, size)?;
                device.meter.take(device.large.allocated() - before, size);
                device.meter.holds_in_large(device.large.reserved());
            }
        }
        Some(())
    }

    fn free(&mut self, index: usize, id: u32) {
        match self.slots.give(id) {
            None => {}
            Some((slot, 0)) => {
                self.tell_common(index);
                self.free_own(slot, &self.trace.allocations[id as usize]);
            }
            Some((slot, size)) => {
                self.small.give(slot);
                self.common.give(size.into());
            }
        }
    }

    /// Frees what is not common to all.
    fn free_own(&mut self, slot: u32, freed: &Allocation) {
        let size_on = |device: usize| match self.sizes.of(freed) {
            Size::Same(size) => size,
            Size::Each(sizes) => sizes[device],
        };
        self.small.give(slot);
        for (at, device) in self.devices.iter_mut().enumerate() {
            let (size, before) = (size_on(at), device.large.allocated());
            device.large.give(slot);
            let block = if is_small(size) { size } else { before - device.large.allocated() };
            device.meter.give(block, size);
        }
    }

    /// Before anything of its own changes, every device hears of the peak that was common to all.
    fn tell_common(&mut self, index: usize) {
        self.devices.iter_mut().for_each(|device| device.meter.hear(&self.common));
        self.common.begin(index);
    }

    /// Before a request of which devices want more or less from their small pools: those that share a pool go on sharing it
    /// through a stretch that leaves it alike, and part otherwise.
    fn agree_on_small_pools(&mut self, index: usize, asked: &Allocation) {
        if self.stretch_until.is_some() || !self.sizes.differ_in_small_pool(asked) {
            return;
        }
        self.stretch_until = stretch::end(self.trace, index);
        let until = self.stretch_until.unwrap_or(index + 1);
        let wants = stretch::wants(self.trace, self.sizes, index..until);
        match self.stretch_until {
            Some(_) => self.small.begin_stretch(asked.stream, &wants),
            None => self.small.part(&wants),
        }
    }

    fn note_reserved(&mut self) {
        for (at, device) in self.devices.iter_mut().enumerate() {
            device.meter.holds_in_large(device.large.reserved());
            device.meter.holds_in_small(self.small.reserved(at));
        }
    }

    fn finish(mut self) -> Vec<Peaks> {
        self.tell_common(self.trace.events.len());
        let Self { devices, small, common, .. } = self;
        let finish = |(at, device): (usize, OnDevice)| {
            let mut by_stream = device.large.reserved_by_stream();
            for (stream, bytes) in small.reserved_by_stream(at).into_iter().enumerate() {
                if stream >= by_stream.len() {
                    by_stream.resize(stream + 1, 0);
                }
                by_stream[stream] += bytes;
            }
            device.meter.finish(&common, by_stream)
        };
        devices.into_iter().enumerate().map(finish).collect()
    }
}
