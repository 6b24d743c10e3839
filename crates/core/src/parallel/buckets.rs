//! `compute_bucket_assignment_by_size` (torch/csrc/distributed/c10d/reducer.cpp, PyTorch 2.11): which tensors share a
//! flat buffer.

use crate::dtype::DType;
use crate::small_sort::SmallSort;
use crate::tensor::Tensor;

/// In what order buckets come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BucketOrder {
    /// By the smallest position in each.
    ByPosition,
    /// As they were filled: the tensors are given in the order their gradients arrive.
    AsFilled,
}

/// A bucket that is being filled, one for each dtype.
struct Filling {
    dtype: DType,
    positions: Vec<usize>,
    bytes: u64,
    /// How many buckets of this dtype were filled before.
    filled: usize,
}

/// Positions in `tensors` by bucket. A bucket is full when it has reached its limit; the last of `limits` holds for all
/// further buckets of a dtype.
pub(super) fn assign_buckets(tensors: &[Tensor], limits: &[u64], order: BucketOrder) -> Vec<Vec<usize>> {
    let mut buckets = Vec::new();
    let mut filling: Vec<Filling> = Vec::new();
    for (position, tensor) in tensors.iter().enumerate() {
        let at = filling.iter().position(|bucket| bucket.dtype == tensor.dtype()).unwrap_or_else(|| {
            filling.push(Filling { dtype: tensor.dtype(), positions: Vec::new(), bytes: 0, filled: 0 });
            filling.len() - 1
        });
        let bucket = &mut filling[at];
        bucket.positions.push(position);
        bucket.bytes += tensor.numel() * tensor.dtype().size();
        let limit = limits.get(bucket.filled).or(limits.last());
        if limit.is_some_and(|&limit| bucket.bytes >= limit) {
            buckets.push(std::mem::take(&mut bucket.positions));
            bucket.bytes = 0;
            bucket.filled += 1;
        }
    }
    // What is left stands in an `unordered_map`, which libstdc++ walks from its newest entry.
    buckets.extend(filling.into_iter().rev().map(|bucket| bucket.positions).filter(|bucket| !bucket.is_empty()));
    if order == BucketOrder::ByPosition {
        buckets.small_sort_by_key(|bucket| bucket.first().copied());
    }
    buckets
}
