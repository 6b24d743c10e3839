//! Stretches of a trace that free all they allocate: the scratch of a kernel, which is of another size on each device.
//!
//! In the small pool every block is as large as its rounded request, and free neighbours are merged at once: how blocks lie
//! goes by what is alive, and by the segments. So such a stretch leaves a pool as it was, whatever its sizes, unless it must
//! ask the driver for a segment.

use std::ops::Range;

use super::sizes::Sizes;
use crate::trace::{AllocationId, Event, Trace};

/// A stretch of more events is none.
const MOST_EVENTS: usize = 256;

/// Where the stretch ends that begins with the allocation at `begin`; `None` where it frees not all that it allocates, or on
/// several streams.
pub(super) fn end(trace: &Trace, begin: usize) -> Option<usize> {
    let mut alive: Vec<AllocationId> = Vec::new();
    let stream = |id: AllocationId| trace.allocations[id as usize].stream;
    let mut of_first = None;
    for (at, event) in trace.events.iter().enumerate().skip(begin).take(MOST_EVENTS) {
        match *event {
            Event::Alloc(id) if stream(id) != *of_first.get_or_insert(stream(id)) => return None,
            Event::Alloc(id) => alive.push(id),
            Event::Free(id) => {
                // Who was alive before may die in it: that is the same for all.
                alive.retain(|other| *other != id);
                if alive.is_empty() {
                    return Some(at + 1);
                }
            }
            Event::Phase(_) | Event::EmptyCache | Event::Repeat(_) | Event::Growing(_) => return None,
        }
    }
    None
}

/// What a device wants from its small pool in a stretch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Want {
    /// All of it together.
    pub total: u64,
    /// The requests of which other devices may want more or less.
    pub own: Vec<u64>,
}

/// What each device wants in a stretch of events.
pub(super) fn wants(trace: &Trace, sizes: &Sizes, stretch: Range<usize>) -> Vec<Want> {
    let mut wants = vec![Want::default(); sizes.devices()];
    for event in trace.events.get(stretch).unwrap_or_default() {
        let Event::Alloc(id) = event else { continue };
        let allocation = &trace.allocations[*id as usize];
        for (device, want) in wants.iter_mut().enumerate() {
            let size = sizes.small_size(allocation, device);
            want.total += size;
            if sizes.differ_in_small_pool(allocation) {
                want.own.push(size);
            }
        }
    }
    wants
}
