//! Softmax and its relatives over the last dimension: the converted copies and temporaries they make.
//!
//! Outputs come first; `_softmax`, `_log_softmax` and `_log_softmax_backward_data` of contiguous tensors allocate
//! nothing else. A dtype argument of `torch.softmax` converts the input before the op, except half to float.

use super::reduce::{self, ReduceKind, Reduction};
use super::{Device, Plan, Steps};
use crate::dtype::DType;

/// A softmax over rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax {
    /// Rows: product of the other dimensions.
    pub rows: u64,
    /// Elements per row.
    pub columns: u64,
    /// Dtype of what the kernel reads: the input, or in the backward pass the incoming gradient.
    pub input: DType,
    /// Dtype of what it writes.
    pub output: DType,
    /// Whether what it reads is contiguous; if not, `safe_softmax` takes it to be a transposed matrix.
    pub contiguous: bool,
}

impl Softmax {
    const fn input_bytes(&self) -> u64 {
        self.rows * self.columns * self.input.size()
    }

    const fn output_bytes(&self) -> u64 {
        self.rows * self.columns * self.output.size()
    }

    const fn copy_bytes(&self) -> u64 {
        if self.contiguous { 0 } else { self.input_bytes() }
    }
}

/// `_softmax` and `_log_softmax`.
pub fn forward(op: &Softmax) -> Steps {
    let mut plan = Plan::new();
    plan.output(0, op.output_bytes());
    plan.touch(op.copy_bytes());
    plan.finish()
}

/// `_softmax_backward_data`; the product of gradient and result is a tensor of its own.
pub fn softmax_backward(op: &Softmax) -> Steps {
    let mut plan = Plan::new();
    plan.output(0, op.output_bytes());
    let grad = plan.alloc(op.copy_bytes());
    let result = plan.alloc(op.copy_bytes());
    let product = plan.alloc(op.input_bytes());
    plan.free_all([product, result, grad]);
    plan.finish()
}

/// `_log_softmax_backward_data`.
pub fn log_softmax_backward(op: &Softmax) -> Steps {
    let mut plan = Plan::new();
    plan.output(0, op.output_bytes());
    let grad = plan.alloc(op.copy_bytes());
    let result = plan.alloc(op.copy_bytes());
    plan.free_all([result, grad]);
    plan.finish()
}

/// `_safe_softmax` (the composite attention's): softmax, then rows that are all `-inf` become 0.
pub fn safe_softmax(op: &Softmax, device: Device) -> Steps {
    let mut plan = Plan::new();
    let same = op.input == op.output || op.input == DType::Float16 && op.output == DType::Float32;
    let converted = plan.alloc(if same { 0 } else { op.output_bytes() });
    plan.output(0, op.output_bytes());
    plan.touch(if same { op.copy_bytes() } else { 0 });
    plan.free(converted);
    let masked = plan.alloc(op.rows * op.columns);
    let rows = plan.alloc(op.rows);
    all(&mut plan, op, device);
    let zero = plan.alloc(op.output.size());
    plan.free_all([zero, rows, masked]);
    plan.finish()
}

/// Whether all elements of each row are masked.
fn all(plan: &mut Plan, op: &Softmax, device: Device) {
    // The mask is laid out like the input.
    let (rows_first, columns_first) = ([op.columns, 1], [1, op.rows]);
    let reduction = Reduction {
        sizes: &[op.rows, op.columns],
        strides: if op.contiguous { &rows_first } else { &columns_first },
        reduced: &[false, true],
        storage_offset: 0,
        input: DType::Bool,
        output: DType::Bool,
        kind: ReduceKind::Any,
    };
    reduce::into_output(plan, &reduction, device);
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::op::scratch::table::{self, Table};

    fn predict(case: &[Value], device: Device) -> Steps {
        let op = Softmax {
            rows: table::number(&case[3]),
            columns: table::number(&case[4]),
            input: table::dtype(&case[1]),
            output: table::dtype(&case[2]),
            contiguous: table::flag(&case[5]),
        };
        match case[0].as_str().unwrap() {
            "softmax" | "log_softmax" => forward(&op),
            "softmax_backward" => softmax_backward(&op),
            "log_softmax_backward" => log_softmax_backward(&op),
            "safe_softmax" => safe_softmax(&op, device),
            other => panic!("unknown case {other}"),
        }
    }

    #[test]
    fn measured_softmaxes_are_reproduced() {
        let full = include_str!("../../../../../testdata/scratch/softmax_sm90.json");
        let patch = include_str!("../../../../../testdata/scratch/softmax_sm80.json");
        for table in Table::pair(full, patch) {
            table.replay(predict);
        }
    }
}
