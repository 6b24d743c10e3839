//! `grouped_mm` (GroupedBlas.cpp): rows in runs, each run times a matrix of its own.

use super::matmul::count_sums;
use super::scratch::grouped::{Grouped, grouped_mm};
use super::scratch::{DeviceSteps, contiguous};
use crate::tensor::{NodeBuilder, Saved, Shape, Tensor, gradients};

const OP: &str = "_grouped_mm.default";

impl Tensor {
    /// `grouped_mm(self, matrices, offs=ends)`: rows [rows, inputs] whose run ends where `ends` says, matrices [groups, inputs, outputs].
    pub fn grouped_mm(&self, matrices: &Tensor, ends: &Tensor) -> Tensor {
        let node = NodeBuilder::new("GroupedMmBackward0", [self, matrices]);
        let saved_matrices = node.save_for(0, matrices);
        let saved_ends = node.save(ends);
        let saved_rows = node.save_for(1, self);
        let is_transposed = is_column_major(matrices);
        let out = multiply_runs(self, matrices);
        node.finish(out, move |grad| {
            let matrices = saved_matrices.as_ref().map(Saved::unpack);
            let groups = saved_ends.unpack().numel();
            let rows = saved_rows.as_ref().map(Saved::unpack);
            let matrices_grad = rows.as_ref().map(|rows| {
                if is_transposed {
                    multiply_to_groups(grad, rows, groups).transpose(1, 2)
                } else {
                    multiply_to_groups(rows, grad, groups)
                }
            });
            let rows_grad = matrices.as_ref().map(|matrices| multiply_runs(grad, &matrices.transpose(1, 2)));
            gradients![rows_grad, matrices_grad]
        })
    }
}

fn is_column_major(matrices: &Tensor) -> bool {
    matrices.strides()[1] == 1
}

/// [rows, inputs] by [groups, inputs, outputs].
fn multiply_runs(rows: &Tensor, matrices: &Tensor) -> Tensor {
    let sizes = Shape::new(&[rows.size(0), matrices.size(2)]);
    let product = (matrices.size(0), rows.size(0) / matrices.size(0).max(1), matrices.size(2));
    let out = multiply(rows, sizes, product);
    count_sums(rows.size(1), [rows, matrices], &out);
    out
}

/// The transpose of [rows, left] by [rows, right], a matrix for each run.
fn multiply_to_groups(left: &Tensor, right: &Tensor, groups: u64) -> Tensor {
    let (rows, columns) = (left.size(1), right.size(1));
    let out = multiply(left, Shape::new(&[groups, rows, columns]), (groups, rows, columns));
    count_sums(left.size(0).div_ceil(groups.max(1)), [left, right], &out);
    out
}

fn multiply(left: &Tensor, sizes: Shape, (groups, rows, columns): (u64, u64, u64)) -> Tensor {
    let dtype = left.dtype();
    let bytes = sizes.iter().product::<u64>() * dtype.size();
    let product = Grouped { groups, rows, columns, dtype, bytes };
    let steps = DeviceSteps::new(left.context(), |device| grouped_mm(&product, device));
    steps.run(left.context(), OP, |_| contiguous(sizes, dtype)).take(0)
}
