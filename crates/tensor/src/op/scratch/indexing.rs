//! Indexing by masks: `nonzero` and `nonzero_static` (Nonzero.cu), `masked_scatter` (IndexKernel.cpp) and the accumulating `index_put`
//! that is the gradient of an index (Indexing.cu).

use super::{Device, Plan, Steps, cub};
use crate::dtype::DType;

/// Bytes of an index.
const INDEX: u64 = 8;
/// Elements that one block of `nonzero_static` reads at once (`BLOCK_THREADS * ITEMS_PER_THREAD`).
const NONZERO_BLOCK: u64 = 512 * 16;

/// `nonzero_static` of a mask, for the positions that are found; output 0 is [found, dims]. `copied`: bytes of the mask where its
/// strides are not its own, which is copied then.
pub fn nonzero_static(Mask { elements, dims, found }: Mask, copied: u64, device: Device) -> Steps {
    let mut plan = Plan::new();
    plan.output(0, found * dims * INDEX);
    let copy = plan.alloc(copied);
    if found > 0 {
        let most_blocks = (2 * device.multiprocessors).max(1);
        let rounds = elements.div_ceil(NONZERO_BLOCK).div_ceil(most_blocks).max(1);
        let blocks = elements.div_ceil(rounds * NONZERO_BLOCK);
        let counts = plan.alloc(4 * blocks);
        let offsets = plan.alloc(INDEX * blocks);
        plan.free_all([offsets, counts]);
    }
    plan.free(copy);
    plan.finish()
}

/// `masked_scatter` into a copy of a tensor of `elements` elements of `size` bytes; output 0 is the copy.
pub fn masked_scatter(elements: u64, size: u64) -> Steps {
    let mut plan = Plan::new();
    plan.output(0, elements * size);
    let positions = plan.alloc(elements * INDEX);
    plan.touch(cub::exclusive_sum(elements, DType::Int64));
    plan.free(positions);
    plan.finish()
}

/// The same with a mask that is spread over the tensor, and so copied.
pub fn masked_scatter_spread(elements: u64, size: u64) -> Steps {
    let mut plan = Plan::new();
    plan.output(0, elements * size);
    let positions = plan.alloc(elements * INDEX);
    let mask = plan.alloc(elements);
    plan.touch(cub::exclusive_sum(elements, DType::Int64));
    plan.free_all([mask, positions]);
    plan.finish()
}

/// `masked_select` by a mask that is spread over the tensor, and so copied; output 0 is the result, of so many bytes.
pub fn select_by_spread_mask(mask: Mask, bytes: u64, device: Device) -> Steps {
    let mut plan = Plan::new();
    let copy = plan.alloc(mask.elements);
    let places = find_nonzero(&mut plan, mask, device);
    plan.free(copy);
    plan.output(0, bytes);
    plan.free(places);
    plan.finish()
}

/// A mask of `elements` with `dims` dimensions, of which `found` are true.
#[derive(Clone, Copy)]
pub struct Mask {
    pub elements: u64,
    pub dims: u64,
    pub found: u64,
}

/// `nonzero` inside another op: how many are true, then where.
fn find_nonzero(plan: &mut Plan, mask: Mask, device: Device) -> Option<u32> {
    let count = plan.alloc(4);
    plan.touch(cub::count_flags(mask.elements, device));
    let places = plan.alloc(mask.found * mask.dims * INDEX);
    plan.touch(cub::select_flagged(mask.elements, device));
    plan.free(count);
    places
}

/// `nonzero` of a mask; output 0 is [found, dims], `copied` as above.
pub fn nonzero(mask: Mask, copied: u64, device: Device) -> Steps {
    let mut plan = Plan::new();
    let copy = plan.alloc(copied);
    let count = plan.alloc(4);
    plan.touch(cub::count_flags(mask.elements, device));
    plan.output(0, mask.found * mask.dims * INDEX);
    plan.touch(cub::select_flagged(mask.elements, device));
    plan.free_all([count, copy]);
    plan.finish()
}

/// `x[mask]`; output 0 is the result, of so many bytes.
pub fn index_by_mask(mask: Mask, bytes: u64, device: Device) -> Steps {
    let mut plan = Plan::new();
    let places = find_nonzero(&mut plan, mask, device);
    plan.output(0, bytes);
    plan.free(places);
    plan.finish()
}

/// `index_put` into what a mask chooses, each place once.
pub fn put_by_mask(mask: Mask, device: Device) -> Steps {
    let mut plan = Plan::new();
    let places = find_nonzero(&mut plan, mask, device);
    plan.free(places);
    plan.finish()
}

/// `index_put(accumulate=True)` into what a mask chooses; `copied` as below.
pub fn index_put_by_mask(mask: Mask, copied: u64, device: Device) -> Steps {
    let mut plan = Plan::new();
    let places = find_nonzero(&mut plan, mask, device);
    put_accumulated(&mut plan, (mask.found, mask.dims, mask.elements), (places, copied), device);
    plan.finish()
}

/// `index_put(accumulate=True)` into `rows` rows by `dims` lists of `count` indices each; values that are not contiguous are
/// `copied`, so many bytes.
pub fn index_put_accumulate((count, dims, rows): (u64, u64, u64), copied: u64, device: Device) -> Steps {
    let mut plan = Plan::new();
    put_accumulated(&mut plan, (count, dims, rows), (None, copied), device);
    plan.finish()
}

/// The same into as many rows as one list in the host's memory has indices, which are made ready there.
pub fn index_put_of_host(count: u64, device: Device) -> Steps {
    let mut plan = Plan::new();
    let linear = plan.alloc(count * INDEX);
    put_sorted(&mut plan, (count, count), (linear, 0), device);
    plan.finish()
}

/// `places` goes when one index is made of each list's.
fn put_accumulated(
    plan: &mut Plan,
    (count, dims, rows): (u64, u64, u64),
    (places, copied): (Option<u32>, u64),
    device: Device,
) {
    let bytes = count * INDEX;
    let mut linear = None;
    for _ in 0..dims {
        let wrapped = plan.alloc(bytes);
        let scaled = plan.alloc(bytes);
        plan.free(wrapped);
        match linear {
            // Added in place.
            Some(_) => plan.free(scaled),
            None => linear = scaled,
        }
    }
    plan.free(places);
    put_sorted(plan, (count, rows), (linear, copied), device);
}

/// Into `rows` rows by the one index that `linear` holds of each place.
fn put_sorted(plan: &mut Plan, (count, rows): (u64, u64), (linear, copied): (Option<u32>, u64), device: Device) {
    let bytes = count * INDEX;
    let values = plan.alloc(copied);
    let sorted = plan.alloc(bytes);
    let original = plan.alloc(bytes);
    let range = plan.alloc(bytes);
    let largest = rows.saturating_sub(1).max(1);
    plan.touch(cub::sort_pairs_of(count, 64 - largest.leading_zeros(), device));
    plan.free_all([range, original, sorted, values, linear]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::scratch::table::{self, Table};

    #[test]
    fn measured_masks_are_reproduced() {
        for text in [
            include_str!("../../../../../testdata/scratch/masks_sm75.json"),
            include_str!("../../../../../testdata/scratch/masks_sm80.json"),
            include_str!("../../../../../testdata/scratch/masks_sm89.json"),
            include_str!("../../../../../testdata/scratch/masks_sm90.json"),
            include_str!("../../../../../testdata/scratch/masks_sm100.json"),
        ] {
            Table::parse(text).replay(|case, device| {
                let sizes = table::sizes(&case[1]);
                let elements: u64 = sizes.iter().product();
                let mask = Mask { elements, dims: sizes.len() as u64, found: table::number(&case[2]) };
                let row = 4 * table::number(&case[3]);
                match case[0].as_str() {
                    Some("index") => index_by_mask(mask, mask.found * row, device),
                    _ => {
                        let mut plan = Plan::new();
                        plan.output(0, elements * row);
                        let mut steps = plan.finish();
                        steps.extend(index_put_by_mask(mask, 0, device));
                        steps
                    }
                }
            });
        }
    }

    #[test]
    fn measured_indexing_is_reproduced() {
        let full = include_str!("../../../../../testdata/scratch/indexing_sm90.json");
        let patch = include_str!("../../../../../testdata/scratch/indexing_sm80.json");
        for table in Table::pair(full, patch) {
            table.replay(|case, device| {
                let [a, b, c] = [1, 2, 3].map(|at| table::number(&case[at]));
                match case[0].as_str() {
                    Some("nonzero_static") => nonzero_static(Mask { elements: a, dims: b, found: c }, 0, device),
                    Some("masked_scatter") => masked_scatter(a, b),
                    _ => index_put_accumulate((a, b, c), 0, device),
                }
            });
        }
    }
}
