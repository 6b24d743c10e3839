//! Where in a square table of positions each patch of an image lies, between four of them (transformers/vision_utils.py,
//! `get_vision_interpolation_indices_and_weights`).

use super::grids::{Patches, SMALL_SCAN};
use crate::dtype::DType;
use crate::op::{arange, full};
use crate::tensor::{Shape, Tensor};

/// Indices and weights of the four, [patches, 4] each.
pub(super) fn interpolate(patches: &Patches, grid_thw: &Tensor) -> (Tensor, Tensor) {
    let (context, images) = (grid_thw.context(), grid_thw.size(0));
    let all = images * patches.grid.patches();
    let counts = {
        let frames = full(context, "mul.Tensor", &[images], DType::Int64);
        frames.map("mul.Tensor", DType::Int64)
    };
    let heights = repeat_each(images, all, &counts);
    let widths = repeat_each(images, all, &counts);
    let starts = {
        let before = {
            let sums = counts.map("cumsum.default", DType::Int64);
            drop(Tensor::scratch(context, "cumsum.default", SMALL_SCAN));
            sums.map("constant_pad_nd.default", DType::Int64)
        };
        let starts = repeat_each(images, all, &counts);
        drop(before);
        starts
    };
    let within = {
        drop(full(context, "sum.default", &[], DType::Int64));
        let place = arange(context, all).map("sub.Tensor", DType::Int64);
        let _frame = heights.map("mul.Tensor", DType::Int64);
        place.map("remainder.Tensor", DType::Int64)
    };
    let variables = in_blocks(&within);
    let taps = [axis_taps(&variables[0]), axis_taps(&variables[1])];
    let grid = |op, dtype| full(context, op, &[all, 2, 2], dtype).view(&[all, 4]);
    let indices = {
        let _of_rows = taps[0].0.map("mul.Tensor", DType::Int64);
        grid("add.Tensor", DType::Int64)
    };
    let weights = grid("mul.Tensor", DType::Float32);
    drop((counts, heights, widths, starts, within, variables, taps));
    (indices, weights)
}

/// `repeat_interleave(x, counts)` of a number for each image.
fn repeat_each(images: u64, all: u64, counts: &Tensor) -> Tensor {
    let (context, op) = (counts.context(), "repeat_interleave.Tensor");
    let sums = full(context, op, &[images], DType::Int64);
    drop(Tensor::scratch(context, op, SMALL_SCAN));
    {
        let _are_positive = full(context, op, &[images], DType::Bool);
        let _all = Tensor::scratch(context, op, 1);
    }
    let places = full(context, op, &[all], DType::Int64);
    drop(sums);
    places.map("index_select.default", DType::Int64)
}

/// Row and column of each patch, and the other variables of the way there.
fn in_blocks(within: &Tensor) -> Vec<Tensor> {
    let step = |op| within.map(op, DType::Int64);
    let blocks_w = step("floor_divide.default");
    let in_col = step("remainder.Scalar");
    let in_row = {
        let _rows = step("floor_divide.default");
        step("remainder.Scalar")
    };
    let block_col = {
        let _blocks = step("floor_divide.default");
        step("remainder.Tensor")
    };
    let block_row = {
        let _blocks = step("mul.Tensor");
        step("floor_divide.default")
    };
    let inside = || {
        let _begin = step("mul.Tensor");
        step("add.Tensor")
    };
    let (row, col) = (inside(), inside());
    vec![row, col, blocks_w, in_col, in_row, block_col, block_row]
}

/// `_interpolation_axis_taps_weights`: the two places on an axis between which each patch lies, and their weights.
fn axis_taps(index: &Tensor) -> (Tensor, Tensor) {
    let (context, all) = (index.context(), index.size(0));
    let pairs = |op, dtype| Tensor::empty(context, op, Shape::new(&[all, 2]), dtype);
    let index = index.map("_to_copy.default", DType::Float32);
    let src = {
        let scaled = index.map("mul.Tensor", DType::Float32);
        let _size = {
            let less = index.map("sub.Tensor", DType::Int64);
            less.map("clamp.default", DType::Int64)
        };
        scaled.map("div.Tensor", DType::Float32)
    };
    let floor = src.map("floor.default", DType::Float32);
    let offsets = full(context, "arange.start", &[2], DType::Int64);
    let raw_taps = {
        let _whole = floor.map("_to_copy.default", DType::Int64);
        pairs("add.Tensor", DType::Int64)
    };
    let taps = pairs("clamp.default", DType::Int64);
    let distance = {
        let signed = {
            let _rest = src.map("sub.Tensor", DType::Float32);
            pairs("sub.Tensor", DType::Float32)
        };
        signed.map("abs.default", DType::Float32)
    };
    let weights = {
        let hat = distance.map("rsub.Scalar", DType::Float32);
        hat.map("clamp.default", DType::Float32)
    };
    drop((index, src, floor, offsets, raw_taps, distance));
    (taps, weights)
}
