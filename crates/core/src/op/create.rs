//! Tensors made from nothing (TensorFactories).

use std::rc::Rc;

use crate::dtype::DType;
use crate::tensor::{Context, Shape, Tensor};

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

/// `tensor[indices]`, a result of `sizes`.
pub(crate) fn index(tensor: &Tensor, sizes: &[u64], _indices: &[&Tensor]) -> Tensor {
    Tensor::empty(tensor.context(), "index.Tensor", Shape::new(sizes), tensor.dtype())
}
