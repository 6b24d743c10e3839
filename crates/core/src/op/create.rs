//! Tensors made from nothing (TensorFactories).

use std::rc::Rc;

use crate::dtype::DType;
use crate::tensor::{Context, Scratch, Shape, Tensor};

/// `arange(count)`, int64.
pub(crate) fn arange(context: &Rc<Context>, count: u64) -> Tensor {
    Tensor::empty(context, "arange.default", Shape::new(&[count]), DType::Int64)
}

/// A tensor filled by `op` (`full.default`, `zeros.default`, ...).
pub(crate) fn full(context: &Rc<Context>, op: &'static str, sizes: &[u64], dtype: DType) -> Tensor {
    Tensor::empty(context, op, Shape::new(sizes), dtype)
}

/// `where(condition, kept, number)`; a number in place of `kept` is made a tensor as the other one is.
pub(crate) fn where_self(condition: &Tensor, kept: Option<Tensor>, dtype: DType) -> Tensor {
    let scalar = || full(condition.context(), "scalar_tensor.default", &[], dtype);
    let kept = kept.unwrap_or_else(scalar);
    let _other = scalar();
    condition.binary("where.self", &kept, dtype)
}

/// `tensor[indices]`, a result of `sizes` that the indices broadcast to. Several indices are brought to the same strides
/// (TensorAdvancedIndexing.cpp, `AdvancedIndex`): by copies, unless they have them.
pub(crate) fn index(tensor: &Tensor, sizes: &[u64], indices: &[&Tensor]) -> Tensor {
    let op = "index.Tensor";
    let context = tensor.context();
    let expanded: Vec<Tensor> =
        if indices.len() > 1 { indices.iter().map(|index| index.expand(sizes)).collect() } else { Vec::new() };
    let strides_match = expanded.windows(2).all(|pair| pair[0].strides() == pair[1].strides());
    let _copies: Vec<Scratch> = expanded
        .iter()
        .filter(|index| !strides_match && !index.is_contiguous())
        .map(|index| Tensor::scratch(context, op, index.numel() * index.dtype().size()))
        .collect();
    Tensor::empty(context, op, Shape::new(sizes), tensor.dtype())
}
