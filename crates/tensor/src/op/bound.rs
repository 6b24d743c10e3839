//! Bounds of values: `clamp` and `minimum` (TensorCompare.cpp, FunctionsManual.cpp).

use super::create::full;
use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Saved, Tensor, gradients};

impl Tensor {
    /// `clamp(self, min, max)` between two numbers
    pub fn clamp(&self) -> Tensor {
        let node = NodeBuilder::new("ClampBackward1", [self]);
        let saved = node.save(self);
        let out = self.unary("clamp.default", self.dtype());
        node.finish(out, move |grad| {
            let this = saved.unpack();
            let _zero = full(grad.context(), "scalar_tensor.default", &[], grad.dtype());
            let is_inside = this.map("ge.Scalar", DType::Bool);
            let _is_below_max = this.map("le.Scalar", DType::Bool);
            gradients![is_inside.binary("where.self", grad, grad.dtype())]
        })
    }

    /// `clamp(self, least, most)` between tensors that nobody differentiates, which are saved.
    pub fn clamp_between(&self, least: &Tensor, most: &Tensor) -> Tensor {
        let node = NodeBuilder::new("ClampBackward0", [self]);
        let saved = [self, least, most].map(|tensor| node.save(tensor));
        let out = self.unary("clamp.Tensor", self.dtype());
        node.finish(out, move |grad| {
            let [this, _least, _most] = saved.each_ref().map(Saved::unpack);
            let _zero = full(grad.context(), "scalar_tensor.default", &[], grad.dtype());
            let is_inside = this.map("ge.Tensor", DType::Bool);
            let _is_below_most = this.map("le.Tensor", DType::Bool);
            gradients![is_inside.binary("where.self", grad, grad.dtype())]
        })
    }

    /// `minimum(self, other)`: equal values share the gradient.
    pub fn minimum(&self, other: &Tensor) -> Tensor {
        self.extreme(other, ("MinimumBackward0", "minimum.default"), ["gt.Tensor", "lt.Tensor"])
    }

    /// The larger of each pair of elements, which two tensors of one shape give (`torch.maximum`).
    pub fn maximum(&self, other: &Tensor) -> Tensor {
        self.extreme(other, ("MaximumBackward0", "maximum.default"), ["lt.Tensor", "gt.Tensor"])
    }

    fn extreme(&self, other: &Tensor, (node, op): (&'static str, &'static str), loses: [&'static str; 2]) -> Tensor {
        let node = NodeBuilder::new(node, [self, other]);
        let needs = [node.needs(0), node.needs(1)];
        let saved = [node.save(other), node.save(self)];
        let out = self.binary(op, other, self.dtype());
        node.finish(out, move |grad| {
            let [other, this] = saved.each_ref().map(Saved::unpack);
            let other_grad = needs[1].then(|| half_where_equal(grad, &this, &other, loses[1]));
            let this_grad = needs[0].then(|| half_where_equal(grad, &this, &other, loses[0]));
            gradients![this_grad, other_grad]
        })
    }
}

/// `where(this == other, grad / 2, grad)`, filled with 0 in place where the comparison `loses` holds.
fn half_where_equal(grad: &Tensor, this: &Tensor, other: &Tensor, loses: &'static str) -> Tensor {
    let _half = grad.unary("div.Tensor", grad.dtype());
    let equal = this.binary("eq.Tensor", other, DType::Bool);
    let shared = equal.binary("where.self", grad, grad.dtype());
    let _lost = this.binary(loses, other, DType::Bool);
    shared
}
