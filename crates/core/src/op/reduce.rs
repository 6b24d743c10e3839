//! Reductions (Reduce.cuh): results, and the scratch memory of those that span several blocks.

use crate::tensor::{MAX_DIMS, NodeBuilder, Shape, Tensor, gradients};

impl Tensor {
    /// `self.mean(-1, keepdim=True)`
    pub fn mean_last(&self) -> Tensor {
        let node = NodeBuilder::new("MeanBackward1", &[self]);
        let last = self.sizes().len() - 1;
        let mut reduced = [false; MAX_DIMS];
        reduced[last] = true;
        let out = self.reduce("mean.dim", &reduced);
        let from = *self.sizes();
        node.finish(out, move |grad| gradients![grad.expand(&from).unary("div.Scalar", grad.dtype())])
    }

    /// `sum_to(sizes)`: sums what was broadcast from `sizes`.
    pub(crate) fn sum_to(&self, sizes: &Shape) -> Tensor {
        let offset = self.sizes().len() - sizes.len();
        let mut reduced = [false; MAX_DIMS];
        for at in 0..self.sizes().len() {
            reduced[at] = at < offset || (sizes[at - offset] == 1 && self.sizes()[at] != 1);
        }
        let out = if reduced.contains(&true) { self.reduce("sum.dim_IntList", &reduced) } else { self.clone() };
        if offset > 0 { out.reshape(sizes) } else { out }
    }

    /// A reduction over the marked dimensions, keeping them with size 1, outside autograd.
    pub(crate) fn reduce(&self, op: &'static str, reduced: &[bool; MAX_DIMS]) -> Tensor {
        let mut sizes = *self.sizes();
        for (at, size) in sizes.iter_mut().enumerate() {
            if reduced[at] {
                *size = 1;
            }
        }
        Tensor::empty(self.context(), op, sizes, self.dtype())
    }
}

impl Tensor {
    /// `cumsum(self, -1)` of int64 results; the scan keeps one more tensor of the result's size while it runs.
    pub(crate) fn cumsum(&self) -> Tensor {
        let op = "cumsum.default";
        let input = self.map(op, crate::dtype::DType::Int64);
        let _converted = Tensor::scratch(self.context(), op, input.numel() * 8);
        input
    }

    /// A reduction of everything to one value.
    pub(crate) fn reduce_all(&self, op: &'static str, dtype: crate::dtype::DType) -> Tensor {
        Tensor::empty(self.context(), op, Shape::new(&[]), dtype)
    }
}
