//! Where an origin stands in the trace's list, found by the addresses of its names: every allocation asks.

use std::cell::Cell;
use std::ptr;

use tonnage_alloc::trace::Origin;

/// So many answers are kept; a model's training step has about as many origins.
const SLOTS: usize = 128;

/// The answers to the last questions, each in a slot that the addresses of its names choose.
pub(super) struct Origins([Cell<(Origin, u16)>; SLOTS]);

impl Default for Origins {
    fn default() -> Self {
        Self([const { Cell::new((Origin { op: "", node: None }, u16::MAX)) }; SLOTS])
    }
}

impl Origins {
    /// The place of `origin` in the list, where it is put if it is not there.
    #[inline]
    pub fn index(&self, list: &mut Vec<Origin>, origin: Origin) -> u16 {
        let slot = &self.0[origin_slot(origin)];
        let (known, index) = slot.get();
        if index != u16::MAX && is_same(known, origin) {
            return index;
        }
        let index = place_of(list, origin);
        slot.set((origin, index));
        index
    }
}

/// Names lie side by side in the program, mostly 8 bytes and more apart.
fn origin_slot(origin: Origin) -> usize {
    let address = |name: &str| name.as_ptr().addr();
    ((address(origin.op) >> 3) ^ (origin.node.map_or(0, address) >> 4)) % SLOTS
}

/// Whether the names are the same ones in memory; equal names elsewhere are found in the list.
fn is_same(a: Origin, b: Origin) -> bool {
    let is_same_node = match (a.node, b.node) {
        (Some(a), Some(b)) => ptr::eq(a, b),
        (None, None) => true,
        _ => false,
    };
    ptr::eq(a.op, b.op) && is_same_node
}

fn place_of(list: &mut Vec<Origin>, origin: Origin) -> u16 {
    let index = list.iter().position(|other| *other == origin).unwrap_or_else(|| {
        list.push(origin);
        list.len() - 1
    });
    // Names are written in the source: there are hundreds of pairs, not thousands.
    index as u16
}
