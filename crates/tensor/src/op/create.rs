//! Tensors made from nothing (TensorFactories).

use std::ops::Range;
use std::rc::Rc;

use crate::dtype::DType;
use crate::tensor::{Context, Scratch, Shape, Tensor};

/// `arange(count)`, int64.
pub fn arange(context: &Rc<Context>, count: u64) -> Tensor {
    Tensor::empty(context, "arange.default", Shape::new(&[count]), DType::Int64)
}

/// `arange(start, end)`, int64.
pub fn arange_from(context: &Rc<Context>, range: Range<u64>) -> Tensor {
    arange(context, range.end.saturating_sub(range.start))
}

/// `torch.empty(sizes, dtype=dtype)`
pub fn empty(context: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    full(context, "empty.memory_format", sizes, dtype)
}

/// `torch.full(sizes, number, dtype=dtype)`
pub fn filled(context: &Rc<Context>, sizes: &[u64], _number: f64, dtype: DType) -> Tensor {
    full(context, "full.default", sizes, dtype)
}

/// `torch.ones(sizes, dtype=dtype)`
pub fn ones(context: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    full(context, "ones.default", sizes, dtype)
}

/// Ones on the diagonal of a [count, count] matrix (`torch.eye`).
pub fn eye(context: &Rc<Context>, count: u64, dtype: DType) -> Tensor {
    full(context, "eye.default", &[count, count], dtype)
}

/// `torch.rand(sizes, dtype=dtype)`
pub fn rand(context: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    full(context, "rand.default", sizes, dtype)
}

/// `torch.zeros(sizes, dtype=dtype)`
pub fn zeros(context: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    full(context, "zeros.default", sizes, dtype)
}

/// `arange(0, end, step)` in fp32
pub fn arange_floats(context: &Rc<Context>, end: u64, step: u64) -> Tensor {
    full(context, "arange.start_step", &[end.div_ceil(step.max(1))], DType::Float32)
}

/// `new_ones((), dtype=torch.bool)`
pub fn true_scalar(context: &Rc<Context>) -> Tensor {
    full(context, "new_ones.default", &[], DType::Bool)
}

/// A number of the host on the device, which `op` puts there.
pub fn number_from_host(context: &Rc<Context>, op: &'static str, _number: f64, dtype: DType) -> Tensor {
    full(context, op, &[], dtype)
}

/// `where(condition, kept, number)`; both are there already, or made tensors first.
pub fn where_number(condition: &Tensor, kept: Tensor, _number: f64, dtype: DType) -> Tensor {
    where_self(condition, Some(kept), dtype)
}

/// A tensor filled by `op` (`full.default`, `zeros.default`, ...).
pub fn full(context: &Rc<Context>, op: &'static str, sizes: &[u64], dtype: DType) -> Tensor {
    Tensor::empty(context, op, Shape::new(sizes), dtype)
}

/// `where(condition, kept, number)`; a number in place of `kept` is made a tensor as the other one is.
pub fn where_self(condition: &Tensor, kept: Option<Tensor>, dtype: DType) -> Tensor {
    let scalar = || full(condition.context(), "scalar_tensor.default", &[], dtype);
    let kept = kept.unwrap_or_else(scalar);
    let _other = scalar();
    condition.binary("where.self", &kept, dtype)
}

/// `tensor[indices]`, a result of `sizes` that the indices broadcast to; `None` is a full range. Several indices are brought to the same strides
/// (TensorAdvancedIndexing.cpp, `AdvancedIndex`): by copies, unless they have them.
pub fn index(tensor: &Tensor, sizes: &[u64], indices: &[Option<&Tensor>]) -> Tensor {
    let op = "index.Tensor";
    let context = tensor.context();
    let several = indices.iter().flatten().count() > 1;
    let expanded: Vec<Tensor> = indices.iter().flatten().filter(|_| several).map(|index| index.expand(sizes)).collect();
    let strides_match = expanded.windows(2).all(|pair| pair[0].strides() == pair[1].strides());
    let _copies: Vec<Scratch> = expanded
        .iter()
        .filter(|index| !strides_match && !index.is_contiguous())
        .map(|index| Tensor::scratch(context, op, index.numel() * index.dtype().size()))
        .collect();
    Tensor::empty(context, op, Shape::new(sizes), tensor.dtype())
}
