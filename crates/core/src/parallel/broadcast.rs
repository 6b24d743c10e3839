//! `broadcast_coalesced` (torch/csrc/distributed/c10d/comm.cpp, PyTorch 2.11): tensors travel in flat buffers, at most
//! two of which are on their way at a time.

use std::collections::VecDeque;

use crate::op::full;
use crate::tensor::Tensor;
use crate::trace::Category;
use crate::units::MIB;

use super::buckets::{BucketOrder, assign_buckets};

/// DDP's `broadcast_bucket_size`.
const BUFFER_BYTES: u64 = 250 * MIB;
const MAX_IN_FLIGHT: usize = 2;

/// Broadcasts `tensors` from rank 0.
pub(super) fn broadcast_coalesced(tensors: &[Tensor]) {
    let mut in_flight = VecDeque::new();
    for bucket in assign_buckets(tensors, &[BUFFER_BYTES], BucketOrder::ByPosition) {
        if in_flight.len() >= MAX_IN_FLIGHT {
            in_flight.pop_front();
        }
        let bucket: Vec<&Tensor> = bucket.iter().filter_map(|&at| tensors.get(at)).collect();
        in_flight.push_back(flatten_dense_tensors(&bucket));
    }
}

/// One flat buffer of several tensors; a single one is its own buffer.
pub(super) fn flatten_dense_tensors(tensors: &[&Tensor]) -> Option<Tensor> {
    let (first, rest) = tensors.split_first()?;
    if rest.is_empty() {
        return Some((*first).clone());
    }
    let _category = first.context().enter_category(Category::Communication);
    let elements = tensors.iter().map(|tensor| tensor.numel()).sum();
    Some(full(first.context(), "cat.default", &[elements], first.dtype()))
}
