//! `embedding_dense_backward`: the sort that gathers each row's gradients and the partial sums it makes.
//!
//! Everything is sized by bounds known on the host, so nothing depends on the token ids; nor does `padding_idx`
//! matter. Order: contiguous copies if needed, the sort's arrays, then the gradient (the output), then partial sums.
//! Not covered: `scale_grad_by_freq`.

use super::{Device, Plan, Steps, cub};
use crate::dtype::DType;

/// Up to so many indices one kernel without workspace does it all (`embedding_dense_backward_cuda`).
const SMALL: u64 = 3072;
/// Rows summed by one warp (`NROWS_PER_THREAD`, EmbeddingBackwardKernel.cu).
const ROWS_PER_PARTIAL: u64 = 10;
/// Few but long segments are added up atomically: more than so many partial sums per thread block, and
/// fewer blocks than so many per multiprocessor (both thresholds bisected; the path is new in PyTorch 2.11, pull 172454).
const FEW: u64 = 4;
/// Threads of a block at most (`MAX_BLOCK_SIZE`).
const MAX_BLOCK: u64 = 1024;
/// Threads of a warp; a row takes whole warps.
const WARP: u64 = 32;
/// Bytes of the numbers of segments and of partial sums, int64 whatever the index.
const COUNT: u64 = 8;
/// Bytes of a partial sum's element: float for every gradient dtype here.
const PARTIAL: u64 = 4;

/// One call: gradients of `indices` rows of `width` elements for a table of `rows` rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddingBackward {
    /// How many indices (tokens).
    pub indices: u64,
    /// Elements per row.
    pub width: u64,
    /// Rows of the table (vocabulary).
    pub rows: u64,
    /// The indices' dtype, int64 or int32.
    pub index: DType,
    /// The gradient's dtype.
    pub dtype: DType,
    /// Whether the incoming gradient is contiguous.
    pub grad_contiguous: bool,
    /// Whether the indices are contiguous.
    pub indices_contiguous: bool,
}

/// Everything the op allocates; output 0 is the table's gradient.
pub fn dense_backward(op: &EmbeddingBackward, device: Device) -> Steps {
    let mut plan = Plan::new();
    let n = op.indices;
    let indices_copy = plan.alloc(if op.indices_contiguous { 0 } else { n * op.index.size() });
    let grad_copy = plan.alloc(if op.grad_contiguous { 0 } else { n * op.width * op.dtype.size() });
    let gradient = op.rows * op.width * op.dtype.size();
    if n <= SMALL {
        plan.output(0, gradient);
    } else {
        sorted(&mut plan, op, gradient, device);
    }
    plan.free_all([grad_copy, indices_copy]);
    plan.finish()
}

fn sorted(plan: &mut Plan, op: &EmbeddingBackward, gradient: u64, device: Device) {
    let n = op.indices;
    let sorted_indices = plan.alloc(n * op.index.size());
    let original_positions = plan.alloc(n * op.index.size());
    let positions = plan.alloc(n * op.index.size());
    let sort = plan.alloc(cub::sort_pairs(n, op.index, device));
    plan.free_all([sort, positions]);
    plan.output(0, gradient);
    partial_sums(plan, op, device);
    plan.free_all([original_positions, sorted_indices]);
}

/// Splits every row's run of indices into partial sums of ten and adds those up.
fn partial_sums(plan: &mut Plan, op: &EmbeddingBackward, device: Device) {
    let n = op.indices;
    let segments = n.min(op.rows);
    let partials = n / ROWS_PER_PARTIAL + segments;
    let segment_offsets = plan.alloc(n * op.index.size());
    let segment_count = plan.alloc(COUNT);
    let unused_keys = plan.alloc(n * op.index.size());
    let unique = plan.alloc(cub::unique(n, op.index, device));
    plan.free_all([unique, unused_keys]);
    let per_segment = plan.alloc(segments * op.index.size());
    let per_segment_offset = plan.alloc(segments * op.index.size());
    plan.touch(cub::exclusive_sum(segments, op.index));
    let partial_count = plan.alloc(COUNT);
    let partial_offsets = plan.alloc(partials * op.index.size());
    let (extra, sums) = if adds_atomically(op.width, segments, partials, device) {
        let widened = if op.dtype.is_half() { segments * op.width * PARTIAL } else { 0 };
        (plan.alloc(partials * op.index.size()), plan.alloc(widened))
    } else {
        (None, plan.alloc(partials * op.width * PARTIAL))
    };
    plan.free_all([sums, extra, partial_offsets, partial_count]);
    plan.free_all([per_segment_offset, per_segment, segment_count, segment_offsets]);
}

/// Whether the partial sums' kernel adds into the gradient directly, without an array of partial sums.
fn adds_atomically(width: u64, segments: u64, partials: u64, device: Device) -> bool {
    let threads = width.next_multiple_of(WARP);
    let blocks = (segments * threads).div_ceil(threads.clamp(1, MAX_BLOCK));
    partials > FEW * blocks && blocks < FEW * device.multiprocessors
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::op::scratch::table::{self, Table};

    fn predict(case: &[Value], index: DType, device: Device) -> Steps {
        let op = EmbeddingBackward {
            index,
            dtype: table::dtype(&case[0]),
            indices: table::number(&case[1]),
            width: table::number(&case[2]),
            rows: table::number(&case[3]),
            grad_contiguous: table::flag(&case[4]),
            indices_contiguous: table::flag(&case[5]),
        };
        dense_backward(&op, device)
    }

    #[test]
    fn measured_embedding_gradients_are_reproduced() {
        let full = include_str!("../../../../../testdata/scratch/embedding_sm90.json");
        let patch = include_str!("../../../../../testdata/scratch/embedding_sm80.json");
        for table in Table::pair(full, patch) {
            table.replay(|case, device| predict(case, DType::Int64, device));
        }
    }

    #[test]
    fn measured_gradients_of_int32_indices_are_reproduced() {
        let full = include_str!("../../../../../testdata/scratch/embedding_int32_sm90.json");
        let patch = include_str!("../../../../../testdata/scratch/embedding_int32_sm80.json");
        for table in Table::pair(full, patch) {
            table.replay(|case, device| predict(case, DType::Int32, device));
        }
    }
}
