//! `native_layer_norm` and `_fused_rms_norm`, forward and backward.
//!
//! Order forward: a contiguous copy of the input if needed, then the outputs. Backward: that copy, the gradients of
//! input, weight and bias, a contiguous copy of the incoming gradient if needed, and for very tall inputs the partial
//! sums of the weight's and bias's gradients, whose sums then replace the gradients allocated before.

use super::reduce::{self, ReduceKind, Reduction};
use super::{Device, Plan, Steps};
use crate::dtype::DType;

/// Bytes of a row statistic.
const FLOAT: u64 = 4;
/// Up to so many rows the weight's gradient needs no partial sums (`LaunchGammaBetaBackwardCUDAKernel`).
const TALL: u64 = 64 * 1024;
/// Columns of one thread block there, and rows it sums.
const BLOCK: u64 = 32;
/// Thread blocks at most.
const MAX_GRID: u64 = 32 * 1024;

/// One normalisation over the last dimension(s).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Norm {
    /// Rows: product of the dimensions that are not normalised.
    pub rows: u64,
    /// Elements per row.
    pub columns: u64,
    /// Dtype of input, weight and bias alike.
    pub dtype: DType,
    /// Whether the input is contiguous.
    pub contiguous: bool,
    /// RMS norm, which has no mean and no bias.
    pub rms: bool,
}

impl Norm {
    const fn bytes(&self) -> u64 {
        self.rows * self.columns * self.dtype.size()
    }

    const fn row_bytes(&self) -> u64 {
        self.columns * self.dtype.size()
    }

    fn input_copy(&self, plan: &mut Plan) -> Option<u32> {
        plan.alloc(if self.contiguous { 0 } else { self.bytes() })
    }
}

/// Everything the forward op allocates: the result, the mean (layer norm only) and the reciprocal deviation.
pub fn forward(op: &Norm) -> Steps {
    let mut plan = Plan::new();
    let copy = op.input_copy(&mut plan);
    let statistics = if op.rms { 1 } else { 2 };
    plan.output(0, op.bytes());
    for index in 1..=statistics {
        plan.output(index, op.rows * FLOAT);
    }
    plan.free(copy);
    plan.finish()
}

/// Which gradients are wanted, and whether the incoming one is contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Input, weight, bias.
    pub grads: [bool; 3],
    /// Whether the incoming gradient is contiguous.
    pub grad_contiguous: bool,
}

/// Everything the backward op allocates: outputs 0, 1 and 2, the gradients of input, weight and bias.
pub fn backward(op: &Norm, wanted: Wanted, device: Device) -> Steps {
    let mut plan = Plan::new();
    let [input, weight, bias] = wanted.grads;
    let bias = bias && !op.rms;
    let input_copy = op.input_copy(&mut plan);
    plan.output(0, if input { op.bytes() } else { 0 });
    let tall = op.rows > TALL && op.columns / BLOCK < device.multiprocessors / 2;
    let mut replaced = [None, None];
    for (index, on) in [(1, weight), (2, bias)] {
        let bytes = if on { op.row_bytes() } else { 0 };
        if tall {
            replaced[usize::from(index) - 1] = plan.alloc(bytes);
        } else {
            plan.output(index, bytes);
        }
    }
    let grad_copy = plan.alloc(if wanted.grad_contiguous { 0 } else { op.bytes() });
    if tall && !weight {
        // Measured: with no weight gradient this path drops the bias's gradient again.
        plan.free(replaced[1]);
    } else if tall {
        partial_sums(&mut plan, op, [weight, bias], replaced, device);
    }
    plan.free_all([grad_copy, input_copy]);
    plan.finish()
}

/// Sums blocks of rows into an array per gradient and reduces that to the gradient.
fn partial_sums(plan: &mut Plan, op: &Norm, wanted: [bool; 2], replaced: [Option<u32>; 2], device: Device) {
    let columns = op.columns.div_ceil(BLOCK).max(1);
    let rows = op.rows.div_ceil(BLOCK).min((MAX_GRID / columns).max(1));
    let sums = wanted.map(|on| plan.alloc(if on { rows * op.row_bytes() } else { 0 }));
    for (index, old) in [(1, replaced[0]), (2, replaced[1])] {
        if !wanted[usize::from(index) - 1] {
            continue;
        }
        plan.output(index, op.row_bytes());
        let sum = Reduction {
            sizes: &[rows, op.columns],
            strides: &[op.columns, 1],
            reduced: &[true, false],
            storage_offset: 0,
            input: op.dtype,
            output: op.dtype,
            kind: ReduceKind::Sum,
        };
        reduce::into_output(plan, &sum, device);
        plan.free(old);
    }
    plan.free_all([sums[1], sums[0]]);
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::op::scratch::table::{self, Table};

    fn predict(case: &[Value], device: Device) -> Steps {
        let name = case[0].as_str().unwrap();
        let op = Norm {
            rows: table::number(&case[2]),
            columns: table::number(&case[3]),
            dtype: table::dtype(&case[1]),
            contiguous: table::flag(&case[4]),
            rms: name.starts_with("rms"),
        };
        if name.ends_with("forward") {
            return forward(&op);
        }
        let grads = [0, 1, 2].map(|bit| table::number(&case[5]) >> bit & 1 == 1);
        backward(&op, Wanted { grads, grad_contiguous: table::flag(&case[6]) }, device)
    }

    #[test]
    fn measured_norms_are_reproduced() {
        let full = include_str!("../../../../../testdata/scratch/norm_sm90.json");
        let patch = include_str!("../../../../../testdata/scratch/norm_sm80.json");
        for table in Table::pair(full, patch) {
            table.replay(predict);
        }
    }
}
