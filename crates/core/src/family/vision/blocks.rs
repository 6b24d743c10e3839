//! Masks by which the tokens of a block see all of it, behind them too (transformers/masking_utils.py, `blockwise_overlay`).

use std::rc::Rc;

use crate::dtype::DType;
use crate::job::Attention;
use crate::model::nn::{MaskInputs, find_packed_sequence_indices};
use crate::op::{arange, full, index, number_from_host, true_scalar, where_self};
use crate::tensor::{Context, Tensor};

/// `get_block_sequence_ids_for_mask`: the number of its image for each token of one, of token types.
pub(super) fn of_images(token_types: &Tensor) -> Tensor {
    let is_image = token_types.eq_number(1.0);
    let padded = {
        let [rows, tokens] = [0, 1].map(|at| token_types.size(at));
        full(token_types.context(), "constant_pad_nd.default", &[rows, tokens + 1], DType::Bool)
    };
    let is_previous_image = padded.slice_any(1, token_types.size(1));
    drop(padded);
    let new_image_start = {
        let is_none = is_previous_image.bitwise_not();
        is_image.bitwise_and(&is_none)
    };
    let group_ids = {
        let counted = {
            let numbers = new_image_start.map("_to_copy.default", DType::Int32);
            let sums = numbers.map("cumsum.default", DType::Int64);
            drop(Tensor::scratch(token_types.context(), "cumsum.default", sums.bytes()));
            sums
        };
        counted.sub_int(1)
    };
    where_self(&is_image, Some(group_ids), DType::Int64)
}

/// `create_causal_mask(..., block_sequence_ids=...)`
pub(super) fn full_mask(inputs: MaskInputs, block_sequence_ids: &Tensor) -> Tensor {
    let call = Call::new(inputs, block_sequence_ids);
    let mask = call.grid_mask(&|grid| grid.kv_indices.le_tensor(&grid.q_indices));
    call.finish(mask)
}

/// `create_sliding_window_causal_mask(..., block_sequence_ids=...)`
pub(super) fn sliding_mask(inputs: MaskInputs, window: u64, block_sequence_ids: &Tensor) -> Tensor {
    let call = Call::new(inputs, block_sequence_ids);
    let mask = call.grid_mask(&|grid| {
        let in_window = || {
            let first = grid.q_indices.sub_int(window);
            grid.kv_indices.gt_tensor(&first)
        };
        all_of(&call.context, &[&in_window, &|| grid.kv_indices.le_tensor(&grid.q_indices)])
    });
    call.finish(mask)
}

/// `create_causal_mask` with the blocks laid over it and a window under both: functions that are no longer of indices are mapped over
/// rows, queries and keys (`torch.vmap`).
pub(super) fn overlaid_sliding_mask(inputs: MaskInputs, window: u64, block_sequence_ids: &Tensor) -> Tensor {
    let call = Call::new(inputs, block_sequence_ids);
    let grid = call.grid();
    // A scalar that a mapped function makes is one for each query.
    let scalar = |op| full(&call.context, op, &[call.sizes[1]], DType::Bool);
    let overlaid = || {
        let is_past = || grid.kv_indices.le_tensor(&grid.q_indices);
        joined(scalar("new_zeros.default"), &[&is_past, &|| call.in_block(&grid)], Tensor::bitwise_or)
    };
    let in_window = || {
        let begin = grid.q_indices.sub_int(window);
        grid.kv_indices.gt_tensor(&begin)
    };
    let windowed = || joined(scalar("new_ones.default"), &[&overlaid, &in_window], Tensor::bitwise_and);
    let mask = match &call.padding_mask {
        None => windowed(),
        Some(padding_mask) => {
            let is_token = || call.is_token(&grid, padding_mask);
            joined(scalar("new_ones.default"), &[&windowed, &is_token], Tensor::bitwise_and)
        }
    };
    drop(grid);
    call.finish(mask)
}

/// What a mask is made for.
struct Call<'a> {
    context: Rc<Context>,
    inputs: MaskInputs<'a>,
    padding_mask: Option<Tensor>,
    block_sequence_ids: &'a Tensor,
    /// Rows, and tokens of each.
    sizes: [u64; 2],
}

/// Indices of rows, queries and keys, each along a dimension of its own.
struct Grid {
    batch_indices: Tensor,
    _head_indices: Tensor,
    q_indices: Tensor,
    kv_indices: Tensor,
}

impl<'a> Call<'a> {
    /// `_preprocess_mask_arguments`
    fn new(inputs: MaskInputs<'a>, block_sequence_ids: &'a Tensor) -> Self {
        let padding_mask = inputs.attention_mask.map(|mask| mask.to(DType::Bool));
        let sizes = [0, 1].map(|at| inputs.inputs_embeds.size(at));
        // Rows with images are never packed: what looks for it finds nothing.
        let positions = inputs.position_ids.filter(|_| padding_mask.is_none());
        drop(positions.map(|position_ids| find_packed_sequence_indices(&position_ids.expand(&sizes))));
        let context = Rc::clone(inputs.inputs_embeds.context());
        Self { context, inputs, padding_mask, block_sequence_ids, sizes }
    }

    fn grid(&self) -> Grid {
        let [rows, tokens] = self.sizes;
        let batch_arange = arange(&self.context, rows);
        let head_indices = arange(&self.context, 1);
        let [q_arange, kv_arange] = [(); 2].map(|()| arange(&self.context, tokens).add_int(0));
        Grid {
            batch_indices: batch_arange.unsqueeze(1).unsqueeze(2).unsqueeze(3),
            _head_indices: head_indices,
            q_indices: q_arange.unsqueeze(0).unsqueeze(0).unsqueeze(3),
            kv_indices: kv_arange.unsqueeze(0).unsqueeze(0).unsqueeze(0),
        }
    }

    /// What `seen` makes of the indices or blocks let through, of tokens that are no padding.
    fn grid_mask(&self, seen: &dyn Fn(&Grid) -> Tensor) -> Tensor {
        let [rows, tokens] = self.sizes;
        let grid = self.grid();
        let in_block = || self.in_block(&grid);
        let overlaid = || any_of(&self.context, &[&|| seen(&grid), &in_block]);
        let mask = match &self.padding_mask {
            None => overlaid(),
            Some(padding_mask) => {
                let is_token = || self.is_token(&grid, padding_mask);
                all_of(&self.context, &[&overlaid, &is_token])
            }
        };
        mask.expand(&[rows, 1, tokens, tokens])
    }

    /// `padding_mask_function`
    fn is_token(&self, grid: &Grid, padding_mask: &Tensor) -> Tensor {
        let [rows, tokens] = self.sizes;
        index(padding_mask, &[rows, 1, 1, tokens], &[Some(&grid.batch_indices), Some(&grid.kv_indices)])
    }

    /// `blockwise_overlay`
    fn in_block(&self, grid: &Grid) -> Tensor {
        let [rows, tokens] = self.sizes;
        let group = |sizes: &[u64; 4], indices: &Tensor| {
            index(self.block_sequence_ids, sizes, &[Some(&grid.batch_indices), Some(indices)])
        };
        let q_group = group(&[rows, 1, tokens, 1], &grid.q_indices);
        let kv_group = group(&[rows, 1, 1, tokens], &grid.kv_indices);
        let (is_same, is_block) = (q_group.eq_tensor(&kv_group), q_group.ge_number(0.0));
        is_same.bitwise_and(&is_block)
    }

    /// What the attention takes.
    fn finish(&self, mask: Tensor) -> Tensor {
        if self.inputs.attention != Attention::Eager {
            return mask;
        }
        let dtype = self.inputs.inputs_embeds.dtype();
        let zero = number_from_host(&self.context, "tensor", 0.0, dtype);
        where_self(&mask, Some(zero), dtype)
    }
}

/// `and_masks`
fn all_of(context: &Rc<Context>, masks: &[&dyn Fn() -> Tensor]) -> Tensor {
    joined(true_scalar(context), masks, Tensor::bitwise_and)
}

/// `or_masks`
fn any_of(context: &Rc<Context>, masks: &[&dyn Fn() -> Tensor]) -> Tensor {
    joined(full(context, "new_zeros.default", &[], DType::Bool), masks, Tensor::bitwise_or)
}

/// `result` with each mask; one dies when it is joined.
fn joined(mut result: Tensor, masks: &[&dyn Fn() -> Tensor], join: fn(&Tensor, &Tensor) -> Tensor) -> Tensor {
    for mask in masks {
        result = {
            let mask = mask();
            join(&result, &mask)
        };
    }
    result
}
