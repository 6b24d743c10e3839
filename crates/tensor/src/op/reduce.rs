//! Reductions (Reduce.cuh): results, and the scratch memory of those that span several blocks.

use super::known_reductions::{self, AskedReduction};
use super::scratch::reduce::ReduceKind;
use super::scratch::{self, DeviceSteps, contiguous, run_steps};
use crate::dtype::DType;
use crate::tensor::{MAX_DIMS, NodeBuilder, Shape, Tensor, gradients, is_autocast};

const NORM: &str = "linalg_vector_norm.default";

/// Marks one dimension.
pub(super) fn only(at: usize) -> [bool; MAX_DIMS] {
    let mut reduced = [false; MAX_DIMS];
    reduced[at] = true;
    reduced
}

impl Tensor {
    /// `self.mean(-1, keepdim=True)`
    pub fn mean_last(&self) -> Tensor {
        let node = NodeBuilder::new("MeanBackward1", [self]);
        let out = self.mean_along(self.sizes().len() - 1);
        let from = *self.sizes();
        node.finish(out, move |grad| gradients![grad.expand(&from).unary("div.Scalar", grad.dtype())])
    }

    /// `self.mean(dim=at)`
    pub fn mean_without(&self, at: usize) -> Tensor {
        let node = NodeBuilder::new("MeanBackward1", [self]);
        let from = *self.sizes();
        let out = self.reduce_into("mean.dim", ReduceKind::Mean, &only(at), from.removed(at), self.dtype());
        node.finish(out, move |grad| gradients![grad.unsqueeze(at).expand(&from).unary("div.Scalar", grad.dtype())])
    }

    /// `self.sum(-1, keepdim=True)`
    pub fn sum_last(&self) -> Tensor {
        let node = NodeBuilder::new("SumBackward1", [self]);
        let (from, last) = (*self.sizes(), self.sizes().len() - 1);
        let dtype = if is_autocast(self) { DType::Float32 } else { self.dtype() };
        let out = self.reduce_into("sum.dim_IntList", ReduceKind::Sum, &only(last), from.with(last, 1), dtype);
        node.finish(out, move |grad| gradients![grad.expand(&from)])
    }

    /// `self.sum(-1)`: one number of each row, in its dtype but under autocast.
    pub fn sum_each(&self) -> Tensor {
        self.sum_over(self.sizes().len() - 1)
    }

    /// `self.sum(at)`, as [`Self::sum_each`].
    pub fn sum_over(&self, at: usize) -> Tensor {
        let node = NodeBuilder::new("SumBackward1", [self]);
        let out = self.sum_along(at);
        let from = *self.sizes();
        node.finish(out, move |grad| gradients![grad.unsqueeze(at).expand(&from)])
    }

    /// `self.sum(at)`, in its dtype but under autocast.
    pub fn sum_at(&self, at: usize) -> Tensor {
        let node = NodeBuilder::new("SumBackward1", [self]);
        let out = self.sum_along(at);
        let from = *self.sizes();
        node.finish(out, move |grad| gradients![grad.unsqueeze(at).expand(&from)])
    }

    /// The sum along dimension `at`, which goes, in `dtype` without a copy (`sum(at, dtype=dtype)`).
    pub fn sum_as(&self, at: usize, dtype: DType) -> Tensor {
        let node = NodeBuilder::new("SumBackward1", [self]);
        let out = self.reduce_into("sum.dim_IntList", ReduceKind::Sum, &only(at), self.sizes().removed(at), dtype);
        let from = *self.sizes();
        node.finish(out, move |grad| gradients![grad.unsqueeze(at).expand(&from)])
    }

    /// `self.sum()`; integers are summed as int64, and autocast sums in fp32 without a copy.
    pub fn sum(&self) -> Tensor {
        let node = NodeBuilder::new("SumBackward0", [self]);
        let dtype = match self.dtype() {
            dtype if !dtype.is_floating_point() => DType::Int64,
            _ if is_autocast(self) => DType::Float32,
            dtype => dtype,
        };
        let out = self.reduce_all("sum.default", ReduceKind::Sum, dtype);
        let from = *self.sizes();
        node.finish(out, move |grad| gradients![grad.expand(&from)])
    }

    /// `self.sum(dim=1)` of a matrix
    pub fn sum_rows(&self) -> Tensor {
        let node = NodeBuilder::new("SumBackward1", [self]);
        let out = self.reduce_last("sum.dim_IntList", ReduceKind::Sum, self.dtype());
        let from = *self.sizes();
        node.finish(out, move |grad| gradients![grad.unsqueeze(1).expand(&from)])
    }

    /// `self.mean()`
    pub fn mean(&self) -> Tensor {
        let node = NodeBuilder::new("MeanBackward0", [self]);
        let out = self.reduce_all("mean.default", ReduceKind::Mean, self.dtype());
        let from = *self.sizes();
        node.finish(out, move |grad| gradients![grad.expand(&from).unary("div.Scalar", grad.dtype())])
    }

    /// `self.nanmean()` (ReduceOps.cpp): a sum of what are numbers over their count.
    pub fn nanmean(&self) -> Tensor {
        let factor = {
            let is_number = self.map("ne.Tensor", DType::Bool);
            is_number.reduce_all("sum.default", ReduceKind::Sum, DType::Int64)
        };
        self.nansum().div_by(&factor)
    }

    fn nansum(&self) -> Tensor {
        let node = NodeBuilder::new("NansumBackward0", [self]);
        let saved = node.save(self);
        let out = self.reduce_all("nansum.default", ReduceKind::Sum, self.dtype());
        node.finish(out, move |grad| {
            let this = saved.unpack();
            let _is_nan = this.map("ne.Tensor", DType::Bool);
            let is_number = this.map("logical_not.default", DType::Bool);
            gradients![grad.expand(this.sizes()).binary("mul.Tensor", &is_number, grad.dtype())]
        })
    }

    /// `sum_to(sizes)`: sums what was broadcast from `sizes`.
    pub fn sum_to(&self, sizes: &Shape) -> Tensor {
        let offset = self.sizes().len() - sizes.len();
        let mut reduced = [false; MAX_DIMS];
        for at in 0..self.sizes().len() {
            reduced[at] = at < offset || (sizes[at - offset] == 1 && self.sizes()[at] != 1);
        }
        let out = if reduced.contains(&true) {
            // Autocast has sums in fp32.
            let dtype = if is_autocast(self) && self.dtype().is_half() { DType::Float32 } else { self.dtype() };
            self.reduce_as("sum.dim_IntList", ReduceKind::Sum, &reduced, dtype)
        } else {
            self.clone()
        };
        if offset > 0 { out.reshape(sizes) } else { out }
    }

    /// A reduction over the marked dimensions, keeping them with size 1, outside autograd.
    pub fn reduce(&self, op: &'static str, kind: ReduceKind, reduced: &[bool; MAX_DIMS]) -> Tensor {
        self.reduce_as(op, kind, reduced, self.dtype())
    }

    /// The same into another dtype.
    fn reduce_as(&self, op: &'static str, kind: ReduceKind, reduced: &[bool; MAX_DIMS], dtype: DType) -> Tensor {
        let mut sizes = *self.sizes();
        for (at, size) in sizes.iter_mut().enumerate() {
            if reduced[at] {
                *size = 1;
            }
        }
        self.reduce_into(op, kind, reduced, sizes, dtype)
    }

    /// A reduction of everything to one value.
    pub fn reduce_all(&self, op: &'static str, kind: ReduceKind, dtype: DType) -> Tensor {
        self.reduce_into(op, kind, &[true; MAX_DIMS], Shape::new(&[]), dtype)
    }

    /// A reduction over the last dimension, which goes.
    pub fn reduce_last(&self, op: &'static str, kind: ReduceKind, dtype: DType) -> Tensor {
        let last = self.sizes().len() - 1;
        let mut reduced = [false; MAX_DIMS];
        reduced[last] = true;
        self.reduce_into(op, kind, &reduced, self.sizes().removed(last), dtype)
    }

    /// The same into a tensor that is there already: only what the kernel allocates for itself.
    pub fn reduce_last_into(&self, op: &'static str, kind: ReduceKind, dtype: DType) {
        let steps = self.reduction_steps(kind, &only(self.sizes().len() - 1), dtype).without_outputs();
        steps.run(self.context(), op, |_| contiguous(*self.sizes(), dtype));
    }

    /// The mean of all elements into a number that is there already.
    pub fn reduce_inside(&self, op: &'static str) {
        let steps = self.reduction_steps(ReduceKind::Mean, &[true; MAX_DIMS], self.dtype()).without_outputs();
        steps.run(self.context(), op, |_| contiguous(*self.sizes(), self.dtype()));
    }

    /// `linalg.vector_norm(self)` of all elements, outside autograd.
    pub fn norm(&self) -> Tensor {
        self.reduce_all(NORM, ReduceKind::Norm, self.dtype())
    }

    /// `linalg.vector_norm(self, dtype=dtype)`, outside autograd.
    pub fn norm_as(&self, dtype: DType) -> Tensor {
        self.reduce_all(NORM, ReduceKind::Norm, dtype)
    }

    /// `linalg.vector_norm(self, dim=at, keepdim=True)`, outside autograd.
    pub fn norm_along(&self, at: usize) -> Tensor {
        self.reduce(NORM, ReduceKind::Norm, &only(at))
    }

    /// `linalg.vector_norm(self, dim=-1, keepdim=True, dtype=dtype)`, outside autograd.
    pub fn norm_of_last(&self, dtype: DType) -> Tensor {
        let last = self.sizes().len().saturating_sub(1);
        self.reduce_into(NORM, ReduceKind::Norm, &only(last), self.sizes().with(last, 1), dtype)
    }

    /// `linalg.norm(self, dim=1)` of a matrix, outside autograd.
    pub fn norm_of_rows(&self) -> Tensor {
        self.reduce_into(NORM, ReduceKind::Norm, &only(1), self.sizes().removed(1), self.dtype())
    }

    /// `sum(self, at)`, outside autograd; autocast sums in fp32 without a copy.
    pub fn sum_along(&self, at: usize) -> Tensor {
        let dtype = if is_autocast(self) { DType::Float32 } else { self.dtype() };
        self.reduce_into("sum.dim_IntList", ReduceKind::Sum, &only(at), self.sizes().removed(at), dtype)
    }

    /// `self.sum((0, 2, 3))` of [rows, channels, height, width], outside autograd.
    pub(super) fn sum_of_channels(&self, op: &'static str) -> Tensor {
        let mut reduced = [false; MAX_DIMS];
        [0, 2, 3].into_iter().for_each(|at| reduced[at] = true);
        self.reduce_into(op, ReduceKind::Sum, &reduced, Shape::new(&[self.sizes()[1]]), self.dtype())
    }

    /// `mean(self, at, keepdim=True)`, outside autograd.
    pub fn mean_along(&self, at: usize) -> Tensor {
        self.reduce("mean.dim", ReduceKind::Mean, &only(at))
    }

    /// A reduction over the marked dimensions of a gradient, whose result has these sizes.
    pub(super) fn reduce_to(
        &self,
        op: &'static str,
        kind: ReduceKind,
        reduced: &[bool; MAX_DIMS],
        sizes: Shape,
    ) -> Tensor {
        self.reduce_into(op, kind, reduced, sizes, self.dtype())
    }

    fn reduce_into(
        &self,
        op: &'static str,
        kind: ReduceKind,
        reduced: &[bool; MAX_DIMS],
        out_sizes: Shape,
        dtype: DType,
    ) -> Tensor {
        self.context().count_bytes(self.bytes());
        let steps = self.reduction_steps(kind, reduced, dtype);
        steps.run(self.context(), op, |_| contiguous(out_sizes, dtype)).take(0)
    }

    fn reduction_steps(&self, kind: ReduceKind, reduced: &[bool; MAX_DIMS], dtype: DType) -> DeviceSteps {
        let asked = AskedReduction {
            sizes: *self.sizes(),
            strides: self.strides(),
            reduced: *reduced,
            kind,
            input: self.dtype(),
            output: dtype,
        };
        DeviceSteps::new(self.context(), |device| known_reductions::steps_of(&asked, device))
    }
}

impl Tensor {
    /// `cumsum(self, -1)`; of integers the result is int64.
    pub fn cumsum(&self) -> Tensor {
        let node = NodeBuilder::new("CumsumBackward0", [self]);
        let columns = self.size(-1);
        let rows = self.numel() / columns.max(1);
        let steps = scratch::scan::cumsum(rows, columns, self.dtype(), self.is_contiguous());
        let dtype = if self.dtype().is_floating_point() { self.dtype() } else { DType::Int64 };
        let out = run_steps(self.context(), "cumsum.default", &steps, |_| contiguous(*self.sizes(), dtype)).take(0);
        node.finish(out, |grad| {
            let flipped = grad.map("flip.default", grad.dtype());
            let summed = flipped.cumsum();
            gradients![summed.map("flip.default", grad.dtype())]
        })
    }

    /// `cumsum(self, at)` of a tensor whose numbers are floats, along another dimension than the last: its kernel needs no room.
    pub fn cumsum_along(&self, at: usize) -> Tensor {
        let node = NodeBuilder::new("CumsumBackward0", [self]);
        let is_one = self.sizes()[at] == 1;
        let summed = |of: &Tensor| {
            let _packed = (!of.is_contiguous()).then(|| of.clone_contiguous());
            Tensor::empty(of.context(), "cumsum.default", *of.sizes(), of.dtype())
        };
        node.finish(summed(self), move |grad| {
            if is_one {
                return gradients![grad.clone()];
            }
            let flipped = grad.map("flip.default", grad.dtype());
            let scanned = summed(&flipped);
            gradients![scanned.map("flip.default", grad.dtype())]
        })
    }
}

impl Tensor {
    /// Along the last dimension, which goes (`logsumexp(self, dim=-1)`).
    pub fn logsumexp(&self) -> Tensor {
        self.logsumexp_along(self.sizes().len().saturating_sub(1))
    }

    /// `logsumexp(self, dim=at)` (ReduceOps.cpp): the difference to the largest value is made once and worked on in place; on autocast's
    /// fp32 list.
    pub fn logsumexp_along(&self, at: usize) -> Tensor {
        self.cast_to_float32().wide_logsumexp(at)
    }

    fn wide_logsumexp(&self, at: usize) -> Tensor {
        let node = NodeBuilder::new("LogsumexpBackward0", [self]);
        let saved = node.save(self);
        let result = {
            let largest =
                self.reduce_into("amax.default", ReduceKind::Max, &only(at), self.sizes().removed(at), self.dtype());
            {
                let size = largest.unary("abs.default", self.dtype());
                let _is_infinite = size.map("eq.Scalar", DType::Bool);
            }
            let differences = self.unary("sub.Tensor", self.dtype());
            differences.reduce_into(
                "sum.dim_IntList",
                ReduceKind::Sum,
                &only(at),
                self.sizes().removed(at),
                self.dtype(),
            )
        };
        let saved_result = node.save(&result);
        node.finish(result, move |grad| {
            let (this, _result) = (saved.unpack(), saved_result.unpack());
            let difference = this.unary("sub.Tensor", this.dtype());
            let share = difference.unary("exp.default", this.dtype());
            gradients![grad.unsqueeze(at).binary("mul.Tensor", &share, this.dtype())]
        })
    }
}
