//! Scans, sorts, losses and dropout.
//!
//! `index_select`, `index`, `gather`, `embedding`, `cat` and `stack` (of any number of tensors), `gelu_backward`,
//! `masked_fill` and `where` allocate their output and nothing else, given tensors of one dtype.

use super::{Device, Plan, Steps, cub};
use crate::dtype::DType;

/// Bytes of an index.
const INDEX: u64 = 8;
/// Rows up to this long are sorted in one block each (`sortKeyValueInplace`).
const MAX_SMALL_SORT: u64 = 4096;
/// Threads of a block of the multi-block top-k.
const TOPK_BLOCK: u64 = 256;
/// Bytes of one radix pass's counters there: 256 digits of 2 bytes.
const TOPK_COUNTS: u64 = 256 * 2;

/// `cumsum` over the last dimension of a `[rows, columns]` tensor; integers are summed as int64.
pub fn cumsum(rows: u64, columns: u64, dtype: DType, contiguous: bool) -> Steps {
    let mut plan = Plan::new();
    let out = if dtype.is_floating_point() { dtype } else { DType::Int64 };
    let bytes = rows * columns * out.size();
    plan.output(0, bytes);
    let converted = plan.alloc(if out == dtype { 0 } else { bytes });
    let packed = plan.alloc(if contiguous { 0 } else { bytes });
    if rows == 1 {
        plan.touch(cub::inclusive_scan(columns, out));
    }
    plan.free_all([packed, converted]);
    plan.finish()
}

/// `sort` along contiguous rows: values, indices and a row of positions. `None` for rows longer than 4096, whose
/// segmented sort is not covered.
pub fn sort(rows: u64, columns: u64, dtype: DType) -> Option<Steps> {
    if columns > MAX_SMALL_SORT {
        return None;
    }
    let mut plan = Plan::new();
    plan.output(0, rows * columns * dtype.size());
    plan.output(1, rows * columns * INDEX);
    plan.touch(columns * INDEX);
    Some(plan.finish())
}

/// `topk` with `k` up to 1024 along contiguous rows.
pub fn topk(rows: u64, columns: u64, k: u64, dtype: DType, device: Device) -> Steps {
    let mut plan = Plan::new();
    plan.output(0, rows * k * dtype.size());
    plan.output(1, rows * k * INDEX);
    if !spreads_rows(rows, columns) {
        return plan.finish();
    }
    let blocks = rows * topk_blocks(rows, columns, device);
    let values = plan.alloc(rows * dtype.size());
    let digits = plan.alloc(rows * 8);
    let wanted = plan.alloc(rows * 8);
    let counts = plan.alloc(blocks * TOPK_COUNTS);
    let sums = plan.alloc(rows * 256 * 4);
    let within = plan.alloc(blocks * 4);
    let at = plan.alloc(blocks * 4);
    plan.touch(cub::SMALL_SCAN_BY_KEY);
    plan.touch(cub::SMALL_SCAN_BY_KEY);
    plan.free_all([at, within, sums, counts, wanted, digits, values]);
    plan.finish()
}

/// Whether several blocks share a row (`should_use_sort`'s neighbour `should_use_multiblock`, TensorTopK.cu).
const fn spreads_rows(rows: u64, columns: u64) -> bool {
    columns
        >= match rows {
            0..=20 => 20_000,
            21..=40 => 10_000,
            41..=79 => 8_000,
            80..=199 => 5_000,
            200..=799 => 3_000,
            800..=4000 => 800,
            _ => 400,
        }
}

/// Blocks per row: 4 to 64 elements per thread, enough to fill the device (`get_items_per_thread`).
fn topk_blocks(rows: u64, columns: u64, device: Device) -> u64 {
    // 40 registers a thread out of 65,536 allow 6 blocks on a multiprocessor.
    let resident = (device.threads_per_multiprocessor() / TOPK_BLOCK).min(6);
    let threads = (device.multiprocessors * resident * TOPK_BLOCK).max(1);
    let items = (rows * columns).div_ceil(threads).clamp(4, 64);
    columns.div_ceil(items * TOPK_BLOCK)
}

/// `nll_loss_forward` of `[rows, classes]`: the loss (one per row when not reduced) and the total weight.
pub fn nll_loss(rows: u64, reduced: bool, dtype: DType) -> Steps {
    let mut plan = Plan::new();
    plan.output(0, if reduced { dtype.size() } else { rows * dtype.size() });
    plan.output(1, dtype.size());
    plan.finish()
}

/// `nll_loss_backward`.
pub fn nll_loss_backward(rows: u64, classes: u64, dtype: DType) -> Steps {
    let mut plan = Plan::new();
    plan.output(0, rows * classes * dtype.size());
    plan.finish()
}

/// `native_dropout`: the mask (output 1) comes before the result.
pub fn native_dropout(elements: u64, dtype: DType) -> Steps {
    let mut plan = Plan::new();
    plan.output(1, elements);
    plan.output(0, elements * dtype.size());
    plan.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::op::scratch::table::{self, Table};

    fn predict(case: &[Value], device: Device) -> Steps {
        let dtype = table::dtype(&case[1]);
        let [a, b, c] = [2, 3, 4].map(|index| table::number(&case[index]));
        match case[0].as_str().unwrap() {
            "cumsum" => cumsum(a, b, dtype, c == 1),
            "sort" => sort(a, b, dtype).expect("short rows"),
            "topk" => topk(a, b, c, dtype, device),
            "nll" => nll_loss(a, c > 0, dtype),
            "nll_backward" => nll_loss_backward(a, b, dtype),
            "dropout" => native_dropout(a * b, dtype),
            other => panic!("unknown case {other}"),
        }
    }

    #[test]
    fn measured_ops_are_reproduced() {
        let full = include_str!("../../../../../testdata/scratch/misc_sm90.json");
        let patch = include_str!("../../../../../testdata/scratch/misc_sm80.json");
        for table in Table::pair(full, patch) {
            table.replay(predict);
        }
    }

    #[test]
    fn long_sorts_are_refused() {
        assert_eq!(sort(1, 4097, DType::Float32), None);
    }
}
