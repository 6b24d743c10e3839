//! Where an origin stands in the trace's list, found by the addresses of its names: every allocation asks.

use std::cell::Cell;

use tonnage_alloc::trace::Origin;

/// So many answers are kept, as a power of two; a model's training step has half as many origins.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 8;

/// The answers to the last questions, each in a slot that the addresses of its names choose.
pub(super) struct Origins([Slot; SLOTS]);

/// An origin's names as they lie in memory, and its place in the list.
struct Slot {
    names: Cell<Names>,
    index: Cell<u16>,
}

/// Address and length of the operator's name and of the node's. Equal names elsewhere in memory are found in the list.
type Names = [usize; 4];

/// No operator's name is nowhere.
const NO_NAMES: Names = [0; 4];

impl Default for Origins {
    fn default() -> Self {
        Self([const { Slot { names: Cell::new(NO_NAMES), index: Cell::new(0) } }; SLOTS])
    }
}

impl Origins {
    /// The place of `origin` in the list, where it is put if it is not there.
    #[inline]
    pub fn index(&self, list: &mut Vec<Origin>, origin: Origin) -> u16 {
        let names = names_of(origin);
        let slot = &self.0[slot_of(names)];
        if is_same(slot.names.get(), names) {
            return slot.index.get();
        }
        let index = place_of(list, origin);
        slot.names.set(names);
        slot.index.set(index);
        index
    }
}

/// Names lie side by side in the program, so that their addresses differ in few bits (Fibonacci hashing).
fn slot_of([op, _, node, _]: Names) -> usize {
    let mixed = (op as u64 ^ (node as u64).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - SLOT_BITS)) as usize
}

fn names_of(Origin { op, node }: Origin) -> Names {
    let (node, node_length) = node.map_or((0, 0), |node| (node.as_ptr().addr(), node.len()));
    [op.as_ptr().addr(), op.len(), node, node_length]
}

/// In one comparison, which is cheaper than four.
fn is_same([a, b, c, d]: Names, [e, f, g, h]: Names) -> bool {
    (a ^ e) | (b ^ f) | (c ^ g) | (d ^ h) == 0
}

#[cold]
fn place_of(list: &mut Vec<Origin>, origin: Origin) -> u16 {
    let index = list.iter().position(|other| *other == origin).unwrap_or_else(|| {
        list.push(origin);
        list.len() - 1
    });
    // Names are written in the source: there are hundreds of pairs, not thousands.
    index as u16
}
