//! Where completions that were generated end, as TRL's trainers ask (trl 1.16).

use crate::dtype::DType;
use crate::op::{ReduceKind, arange, full};
use crate::tensor::Tensor;

/// `completion_mask` and the variables that it is made from, which live as long.
pub(super) struct CompletionEnds {
    pub completion_mask: Tensor,
    _is_eos: Tensor,
    _eos_idx: Tensor,
    _sequence_indices: Tensor,
}

impl CompletionEnds {
    /// Of completions of which none has an end; `ends` are the sizes of the tensor of tokens that would be one.
    pub(super) fn find(completion_ids: &Tensor, ends: &[u64]) -> Self {
        let context = completion_ids.context();
        let (rows, tokens) = (completion_ids.size(0), completion_ids.size(1));
        let is_eos = {
            let eos_token_ids = full(context, "_to_copy.default", ends, DType::Int64);
            completion_ids.is_in(&eos_token_ids)
        };
        let eos_idx = full(context, "full.default", &[rows], DType::Int64);
        first_true(&is_eos);
        let sequence_indices = arange(context, tokens);
        let completion_mask = {
            let is_before = sequence_indices.expand(&[rows, tokens]).map("le.Tensor", DType::Bool);
            is_before.map("_to_copy.default", DType::Int32)
        };
        Self { completion_mask, _is_eos: is_eos, _eos_idx: eos_idx, _sequence_indices: sequence_indices }
    }
}

/// `eos_idx[is_eos.any(dim=1)] = is_eos.int().argmax(dim=1)[is_eos.any(dim=1)]`
fn first_true(is_eos: &Tensor) {
    let first = {
        let numbers = is_eos.map("_to_copy.default", DType::Int32);
        numbers.reduce_last("argmax.default", ReduceKind::ArgMax, DType::Int64)
    };
    let has_end = || is_eos.reduce_last("any.dim", ReduceKind::Any, DType::Bool);
    let right = has_end();
    drop((first, right));
    has_end();
}
