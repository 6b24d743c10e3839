//! `_scaled_dot_product_efficient_attention`, forward and backward, on compute capability 8.0 and up.
//!
//! Layouts: whatever query, key and value (`[B, H, S, D]`) look like, the output and the three gradients are
//! contiguous as `[B, S, H, D]`. Seed and offset of the dropout are CPU tensors. A bias changes nothing but by its
//! gradient; neither do masks and dropout. Workspaces are those of GPUs with 160 KiB or more of shared memory.

use super::{Plan, Steps};
use crate::dtype::DType;

/// Bytes of a float.
const FLOAT: u64 = 4;
/// The logsumexp's rows are padded to this (`kAlignLSE`).
const LSE_ALIGNMENT: u64 = 32;
/// Keys that rows of a bias's gradient are padded to (`alignTo`).
pub const BIAS_ALIGNMENT: u64 = 16;
/// Up to this head size half-precision results stay in registers.
const MAX_REGISTER_HEAD: u64 = 128;
/// Words before each tile of the query gradient's accumulator: a lock, a counter and padding (`GradQTempStorage`).
const TILE_HEADER: u64 = 4;
/// Keys per block (`kBlockSizeJ`) of the kernel for large half-precision heads.
const KEY_BLOCK: u64 = 64;
/// Bound on splits times batch times heads when the key gradients need an accumulator.
const MAX_SPLITS: u64 = 200;

/// One attention call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Efficient {
    pub batch: u64,
    /// Heads, of query, key and value alike.
    pub heads: u64,
    /// In tokens.
    pub queries: u64,
    /// In tokens.
    pub keys: u64,
    /// Head size of query and key.
    pub head_size: u64,
    /// Head size of value, and of the result.
    pub value_size: u64,
    pub dtype: DType,
}

impl Efficient {
    const fn rows(&self) -> u64 {
        self.batch * self.heads * self.queries
    }

    const fn query_bytes(&self) -> u64 {
        self.rows() * self.head_size * self.dtype.size()
    }

    const fn key_bytes(&self) -> u64 {
        self.batch * self.heads * self.keys * self.head_size * self.dtype.size()
    }

    const fn result_bytes(&self) -> u64 {
        self.rows() * self.value_size * self.dtype.size()
    }

    const fn value_bytes(&self) -> u64 {
        self.batch * self.heads * self.keys * self.value_size * self.dtype.size()
    }

    /// A bias's gradient, whose rows of keys are padded.
    const fn bias_bytes(&self) -> u64 {
        self.rows() * self.keys.next_multiple_of(BIAS_ALIGNMENT) * self.dtype.size()
    }

    /// By which a kernel is chosen.
    fn larger_size(&self) -> u64 {
        self.head_size.max(self.value_size)
    }

    /// Half precision with heads too large for registers: float accumulators in memory.
    fn accumulates(&self) -> bool {
        self.dtype.is_half() && self.larger_size() > MAX_REGISTER_HEAD
    }
}

/// Everything the forward op allocates: outputs 0 (result) and, if a gradient is wanted, 1 (logsumexp).
pub fn forward(op: &Efficient, logsumexp: bool) -> Steps {
    let mut plan = Plan::new();
    plan.output(0, op.result_bytes());
    if logsumexp {
        plan.output(1, op.batch * op.heads * op.queries.next_multiple_of(LSE_ALIGNMENT) * FLOAT);
    }
    if op.accumulates() {
        plan.touch(op.rows() * op.value_size * FLOAT);
    }
    plan.finish()
}

/// Everything the backward op allocates: outputs 0, 1 and 2, the gradients of query, key and value.
/// `copies_grad`: the incoming gradient is not contiguous as `[B, S, H, D]`. `bias_grad`: output 3 is the bias's, of every row and head.
pub fn backward(op: &Efficient, copies_grad: bool, bias_grad: bool) -> Steps {
    let mut plan = Plan::new();
    let copy = plan.alloc(if copies_grad { op.result_bytes() } else { 0 });
    plan.output(0, op.query_bytes());
    plan.output(1, op.key_bytes());
    plan.output(2, op.value_bytes());
    plan.output(3, if bias_grad { op.bias_bytes() } else { 0 });
    let delta = if op.dtype.is_half() { plan.alloc(op.rows() * FLOAT) } else { composed_delta(&mut plan, op) };
    let workspace = plan.alloc(workspace(op));
    plan.free_all([delta, workspace, copy]);
    plan.finish()
}

/// In float, delta is made of ordinary ops: a product, its sum over the head, and that transposed.
fn composed_delta(plan: &mut Plan, op: &Efficient) -> Option<u32> {
    let product = plan.alloc(op.result_bytes());
    let mut delta = plan.alloc(op.rows() * FLOAT);
    if op.heads > 1 && op.queries > 1 {
        let sum = delta;
        delta = plan.alloc(op.rows() * FLOAT);
        plan.free(sum);
    }
    plan.free(product);
    delta
}

/// Bytes of the backward kernel's workspace (`workspace_size`, kernel_backward.h).
fn workspace(op: &Efficient) -> u64 {
    // Query rows and head columns of one tile (`kBlockSizeI`, `MatmulGradQ::ThreadblockShape::kN`).
    let (rows, columns) = match op.larger_size() {
        0..=64 => (64, 64),
        65..=MAX_REGISTER_HEAD if op.dtype.is_half() => (128, 128),
        _ => (128, 64),
    };
    let tiles = op.queries.div_ceil(rows) * op.head_size.div_ceil(columns);
    let mut words = tiles * (rows * columns + TILE_HEADER);
    if op.accumulates() {
        let width = op.head_size.next_multiple_of(rows) + op.value_size.next_multiple_of(rows);
        words += key_splits(op) * KEY_BLOCK * width;
    }
    op.batch * op.heads * words * FLOAT
}

/// How many thread blocks share the keys of one head where their gradients accumulate in memory.
fn key_splits(op: &Efficient) -> u64 {
    let most = MAX_SPLITS.checked_div(op.batch * op.heads).unwrap_or(1);
    op.keys.div_ceil(KEY_BLOCK).min(most).max(1)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::op::scratch::table::{self, Table};

    fn predict(case: &[Value]) -> Steps {
        let size = |index: usize| table::number(&case[index]);
        let op = Efficient {
            batch: size(2),
            heads: size(3),
            queries: size(5),
            keys: size(6),
            head_size: size(7),
            value_size: size(7),
            dtype: table::dtype(&case[1]),
        };
        if case[0] == "forward" {
            return forward(&op, table::flag(&case[8]));
        }
        backward(&op, !table::flag(&case[10]), false)
    }

    #[test]
    fn measured_efficient_attention_is_reproduced() {
        let full = include_str!("../../../../../testdata/scratch/efficient_sm90.json");
        let patch = include_str!("../../../../../testdata/scratch/efficient_sm80.json");
        for table in Table::pair(full, patch) {
            table.replay(|case, _| predict(case));
        }
    }
}
