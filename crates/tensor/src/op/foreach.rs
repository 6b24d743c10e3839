//! The `_foreach_*` operators (ForeachReduceOp.cu, ForeachUnaryOp.cu): one op over many tensors.

use std::borrow::Borrow;

use super::scratch::foreach::{Item, norms};
use super::scratch::{contiguous, run_steps};
use crate::dtype::DType;
use crate::tensor::{Shape, Tensor};

/// The norm of each tensor, all of one dtype.
pub fn foreach_norm(tensors: &[&Tensor]) -> Vec<Tensor> {
    let Some(first) = tensors.first() else { return Vec::new() };
    let items: Vec<Item<'_>> =
        tensors.iter().map(|tensor| Item { sizes: tensor.sizes(), dtype: tensor.dtype() }).collect();
    tensors.iter().for_each(|tensor| tensor.context().count_bytes(tensor.bytes()));
    let scalar = |_| contiguous(Shape::new(&[]), first.dtype());
    run_steps(first.context(), "_foreach_norm.Scalar", &norms(&items), scalar).into_vec()
}

/// The square root of each tensor.
pub fn foreach_sqrt<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> Vec<Tensor> {
    tensors.map(|tensor| tensor.unary("_foreach_sqrt.default", tensor.dtype())).collect()
}

/// The positions of tensors of the same dtype, a group for each dtype.
///
/// The group found last comes first: PyTorch collects them in an `unordered_map` (ForeachUtils.h,
/// `_group_tensors_by_first_tensors_device_and_dtype`), which libstdc++ walks from its newest bucket.
pub fn group_by_dtype(tensors: &[impl Borrow<Tensor>]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(DType, Vec<usize>)> = Vec::new();
    for (at, tensor) in tensors.iter().enumerate() {
        match groups.iter_mut().find(|(dtype, _)| *dtype == tensor.borrow().dtype()) {
            Some((_, group)) => group.push(at),
            None => groups.push((tensor.borrow().dtype(), vec![at])),
        }
    }
    groups.into_iter().rev().map(|(_, group)| group).collect()
}
