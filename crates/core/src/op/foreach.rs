//! The `_foreach_*` operators (ForeachReduceOp.cu, ForeachUnaryOp.cu): one op over many tensors.

use crate::dtype::DType;
use crate::tensor::{Shape, Tensor};

/// Elements that one thread block of a foreach kernel takes (MultiTensorApply.cuh, `kChunkSize`).
const CHUNK: u64 = 65_536;

/// The norm of each tensor, all of one dtype: while the op runs, a table of partial norms holds as many chunks for
/// every tensor as the largest one has, in the dtype that half types are accumulated in.
pub(crate) fn foreach_norm(tensors: &[Tensor]) -> Vec<Tensor> {
    let Some(first) = tensors.first() else { return Vec::new() };
    let op = "_foreach_norm.Scalar";
    let chunks = tensors.iter().map(|tensor| tensor.numel().div_ceil(CHUNK)).max().unwrap_or(0);
    let accumulated = if first.dtype().is_half() { DType::Float32 } else { first.dtype() };
    let _partial = Tensor::scratch(first.context(), op, tensors.len() as u64 * chunks * accumulated.size());
    let scalar = || Tensor::empty(first.context(), op, Shape::new(&[]), first.dtype());
    tensors.iter().map(|_| scalar()).collect()
}

/// The square root of each tensor.
pub(crate) fn foreach_sqrt<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> Vec<Tensor> {
    tensors.map(|tensor| tensor.unary("_foreach_sqrt.default", tensor.dtype())).collect()
}

/// The positions of tensors of the same dtype, a group for each dtype.
///
/// The group found last comes first: PyTorch collects them in an `unordered_map` (ForeachUtils.h,
/// `_group_tensors_by_first_tensors_device_and_dtype`), which libstdc++ walks from its newest bucket.
pub(crate) fn group_by_dtype(tensors: &[Tensor]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(DType, Vec<usize>)> = Vec::new();
    for (at, tensor) in tensors.iter().enumerate() {
        match groups.iter_mut().find(|(dtype, _)| *dtype == tensor.dtype()) {
            Some((_, group)) => group.push(at),
            None => groups.push((tensor.dtype(), vec![at])),
        }
    }
    groups.into_iter().rev().map(|(_, group)| group).collect()
}
