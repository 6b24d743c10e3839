//! `_scaled_dot_product_flash_attention`, forward and backward.
//!
//! Layouts: query, key and value are `[B, H, S, D]`; the output and the three gradients are laid out in memory in the
//! order of query, key and value (dense even if those are slices of a larger tensor). Head sizes are multiples of 8
//! here; `scaled_dot_product_attention` pads others before the op.

use super::{Device, Plan, Steps, reduce};
use crate::dtype::DType;

/// Bytes of a float, in which statistics and accumulators are kept.
const FLOAT: u64 = 4;
/// The random state: two 64-bit numbers.
const RNG_STATE: u64 = 16;
/// A 64-bit number that nothing uses.
const UNUSED: u64 = 8;
/// Query rows are padded to this in the backward pass's workspaces (`seqlen_q_rounded`).
const ROW_BLOCK: u64 = 128;
/// Query rows per block of the split-KV kernel.
const SPLIT_ROW_BLOCK: u64 = 64;
/// Splits at most.
const MAX_SPLITS: u64 = 128;

/// One attention call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flash {
    /// Rows of the batch.
    pub batch: u64,
    pub heads: u64,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u64,
    /// Positions of the queries.
    pub queries: u64,
    /// Positions of keys and values.
    pub keys: u64,
    /// Head size, a multiple of 8.
    pub head_size: u64,
    /// `float16` or `bfloat16`.
    pub dtype: DType,
    /// Whether attention dropout is on.
    pub dropout: bool,
}

impl Flash {
    fn query_bytes(&self) -> u64 {
        self.batch * self.heads * self.queries * self.head_size * self.dtype.size()
    }

    fn key_bytes(&self) -> u64 {
        self.batch * self.kv_heads * self.keys * self.head_size * self.dtype.size()
    }

    /// The head size rounded up as the kernels are instantiated.
    const fn rounded_head_size(&self) -> u64 {
        self.head_size.next_multiple_of(if self.head_size <= 128 { 32 } else { 64 })
    }

    /// The same in the package (2.7 and later; `head_size_rounded` in flash_api.cpp).
    const fn package_head_size(&self) -> u64 {
        if self.head_size <= 192 { self.head_size.next_multiple_of(32) } else { 256 }
    }

    /// A single query position turns its head groups into query rows.
    const fn swaps_groups(&self) -> bool {
        self.queries == 1 && self.heads > self.kv_heads && !self.dropout
    }
}

/// Result and logsumexp, outputs 0 and 1, and the accumulators of splits where there are several.
fn results(op: &Flash, head_size: u64, device: Device) -> (Plan, [Option<u32>; 2]) {
    let mut plan = Plan::new();
    let rows = op.batch * op.heads * op.queries;
    plan.output(0, op.query_bytes());
    plan.output(1, rows * FLOAT);
    let splits = splits(op, device);
    if splits == 1 {
        return (plan, [None, None]);
    }
    let statistics = plan.alloc(splits * rows * FLOAT);
    let results = plan.alloc(splits * rows * head_size * FLOAT);
    (plan, [statistics, results])
}

/// Everything the forward op allocates: outputs 0 (result), 1 (logsumexp), 6 and 7 (random state).
pub fn forward(op: &Flash, device: Device) -> Steps {
    let (mut plan, accumulators) = results(op, op.rounded_head_size(), device);
    let unused_state = if op.dropout { plan.alloc(RNG_STATE) } else { None };
    if !op.dropout {
        plan.output(6, RNG_STATE);
    }
    plan.output(7, UNUSED);
    if op.dropout {
        plan.output(6, RNG_STATE);
        plan.free(unused_state);
    }
    plan.free_all(accumulators);
    plan.finish()
}

/// Everything that the flash-attn package's forward allocates (`mha_fwd`, flash-attn 2.8): outputs 0 (result), 1 (logsumexp),
/// 6 (random state).
pub fn package_forward(op: &Flash, device: Device) -> Steps {
    let (mut plan, accumulators) = results(op, op.package_head_size(), device);
    plan.output(6, RNG_STATE);
    plan.free_all(accumulators);
    plan.finish()
}

/// Everything that its backward allocates (`FlashAttnFunc.backward`, then `mha_bwd`): outputs 0, 1 and 2, the gradients of
/// query, key and value. It copies nothing.
pub fn package_backward(op: &Flash, _copies: Copies, device: Device) -> Steps {
    gradients(op, Copies::default(), op.package_head_size(), device)
}

/// How many blocks of keys work on the same queries (`set_params_splitkv`).
fn splits(op: &Flash, device: Device) -> u64 {
    if op.dropout {
        return 1;
    }
    let key_block = match op.head_size {
        0..=64 => 256,
        65..=128 => 128,
        _ => 64,
    };
    let (heads, queries) =
        if op.swaps_groups() { (op.kv_heads, op.heads / op.kv_heads) } else { (op.heads, op.queries) };
    let blocks = op.batch * heads * queries.div_ceil(SPLIT_ROW_BLOCK);
    // Twice the multiprocessors, since a block has only 128 threads.
    best_splits(blocks, device.multiprocessors * 2, op.keys.div_ceil(key_block))
}

/// The fewest splits that reach 85 % of the best occupancy (`num_splits_heuristic`), in exact fractions.
fn best_splits(blocks: u64, slots: u64, key_blocks: u64) -> u64 {
    if blocks * 10 >= slots * 8 {
        return 1;
    }
    let most = MAX_SPLITS.min(slots).min(key_blocks);
    let useful = |splits: &u64| *splits == 1 || key_blocks.div_ceil(*splits) != key_blocks.div_ceil(*splits - 1);
    // Occupancy is work done over slots held: blocks * splits / (waves * slots).
    let occupancy = |splits: u64| (blocks * splits, (blocks * splits).div_ceil(slots).max(1));
    let best = (1..=most)
        .filter(useful)
        .map(occupancy)
        .fold((0, 1), |best, this| if this.0 * best.1 > best.0 * this.1 { this } else { best });
    let enough = |splits: &u64| {
        let (work, waves) = occupancy(*splits);
        work * best.1 * 100 >= best.0 * waves * 85
    };
    (1..=most).filter(useful).find(enough).unwrap_or(1)
}

/// What of the backward op's arguments must be copied to be contiguous as `[B, S, H, D]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// The incoming gradient.
    pub grad: bool,
    /// The forward op's result.
    pub result: bool,
}

/// Everything the backward op allocates: outputs 0, 1 and 2, the gradients of query, key and value.
pub fn backward(op: &Flash, copies: Copies, device: Device) -> Steps {
    gradients(op, copies, op.rounded_head_size(), device)
}

fn gradients(op: &Flash, copies: Copies, head_size: u64, device: Device) -> Steps {
    let mut plan = Plan::new();
    let copied = [copies.grad, copies.result].map(|copy| plan.alloc(if copy { op.query_bytes() } else { 0 }));
    plan.output(0, op.query_bytes());
    plan.output(1, op.key_bytes());
    plan.output(2, op.key_bytes());
    let rows = op.batch * op.heads * op.queries.next_multiple_of(ROW_BLOCK);
    let sums = plan.alloc(rows * FLOAT);
    let query_sums = plan.alloc(rows * head_size * FLOAT);
    if op.kv_heads != op.heads {
        expanded(&mut plan, op, device);
    }
    plan.free_all([query_sums, sums, copied[1], copied[0]]);
    plan.finish()
}

/// Grouped heads: key and value gradients per query head, then summed over each group.
fn expanded(plan: &mut Plan, op: &Flash, device: Device) {
    let groups = op.heads / op.kv_heads.max(1);
    let bytes = op.key_bytes() * groups;
    let key = plan.alloc(bytes);
    let value = plan.alloc(bytes);
    let sizes = [op.batch, op.keys, op.kv_heads, groups, op.head_size];
    let row = op.heads * op.head_size;
    let sum = reduce::Reduction {
        sizes: &sizes,
        strides: &[op.keys * row, row, groups * op.head_size, op.head_size, 1],
        reduced: &[false, false, false, true, false],
        storage_offset: 0,
        input: op.dtype,
        output: op.dtype,
        kind: reduce::ReduceKind::Sum,
    };
    reduce::into_output(plan, &sum, device);
    reduce::into_output(plan, &sum, device);
    plan.free_all([value, key]);
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::op::scratch::table::{self, Table};

    fn predict(case: &[Value], device: Device) -> Steps {
        let size = |index: usize| table::number(&case[index]);
        let layout = case[9].as_str().unwrap();
        let op = Flash {
            batch: size(2),
            heads: size(3),
            kv_heads: size(4),
            queries: size(5),
            keys: size(6),
            head_size: size(7),
            dtype: table::dtype(&case[1]),
            dropout: table::flag(&case[8]),
        };
        if case[0] == "forward" {
            return forward(&op, device);
        }
        let result = layout == "bhsd" && op.heads > 1 && op.queries > 1;
        backward(&op, Copies { grad: !table::flag(&case[10]), result }, device)
    }

    #[test]
    fn measured_flash_attention_is_reproduced() {
        let full = include_str!("../../../../../testdata/scratch/flash_sm90.json");
        let patch = include_str!("../../../../../testdata/scratch/flash_sm80.json");
        for table in Table::pair(full, patch) {
            table.replay(predict);
        }
    }
}
