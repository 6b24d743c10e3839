//! What `generate` knew of positions before transformers 5.1: `cache_position`, and position ids made from the mask of
//! every pass (generation/utils.py, `_get_initial_cache_position` and `prepare_inputs_for_generation`).

use std::rc::Rc;

use crate::dtype::DType;
use crate::op::index;
use crate::tensor::{Context, Tensor};

/// `ones_like(input_ids[0]).cumsum(0) - 1`; `None` for versions without it.
pub(super) fn initial_position(context: &Rc<Context>, input_ids: &Tensor) -> Option<Tensor> {
    context.transformers().reads_cache_position().then(|| {
        let row = input_ids.narrow_any(0, 1).squeeze(0).ones_like();
        row.cumsum().map("sub.Tensor", DType::Int64)
    })
}

/// The tokens at `cache_position`, and their position ids.
pub(super) fn inputs_at(cache_position: &Tensor, input_ids: &Tensor, attention_mask: &Tensor) -> [Tensor; 2] {
    let tokens = cache_position.size(0);
    let chosen = if input_ids.size(1) == tokens {
        input_ids.clone()
    } else {
        index(input_ids, &[input_ids.size(0), tokens], &[None, Some(cache_position)])
    };
    let input_ids = chosen.clone_contiguous();
    let positions = attention_mask.cumsum().map("sub.Tensor", DType::Int64);
    let is_padding = attention_mask.map("eq.Scalar", DType::Bool);
    drop(is_padding);
    let position_ids = positions.narrow_any(1, tokens).clone_contiguous();
    [input_ids, position_ids]
}
