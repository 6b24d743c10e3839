//! Standard deviations, roots and larger ones of two (formulas of derivatives.yaml), and the quantile of a normal distribution.

use super::reduce::only;
use super::scratch::reduce::ReduceKind;
use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Tensor, gradients};

const MUL: &str = "mul.Tensor";

impl Tensor {
    /// `self.std(-1, keepdim=True, unbiased=False)`
    pub fn std_last(&self) -> Tensor {
        let node = NodeBuilder::new("StdBackward0", [self]);
        let out = self.reduce("std.correction", ReduceKind::Var, &only(self.sizes().len() - 1));
        let (saved, result) = (node.save(self), node.save(&out));
        node.finish(out, move |grad| {
            let (this, result) = (saved.unpack(), result.unpack());
            let grad_var = {
                let doubled = result.unary(MUL, result.dtype());
                let divided = grad.binary("div.Tensor", &doubled, grad.dtype());
                let _is_zero = result.map("eq.Scalar", DType::Bool);
                divided
            };
            let mean = this.mean_along(this.sizes().len() - 1);
            let centred = this.binary("sub.Tensor", &mean, this.dtype());
            let scaled = grad_var.unary(MUL, grad_var.dtype());
            gradients![scaled.binary(MUL, &centred, centred.dtype())]
        })
    }

    /// `sqrt(self)`; saves its result.
    pub fn sqrt(&self) -> Tensor {
        let node = NodeBuilder::new("SqrtBackward0", [self]);
        let out = self.unary("sqrt.default", self.dtype());
        let result = node.save(&out);
        node.finish(out, move |grad| {
            let result = result.unpack();
            let doubled = result.unary(MUL, result.dtype());
            gradients![grad.binary("div.Tensor", &doubled, grad.dtype())]
        })
    }

    /// `maximum(self, bound)` of a bound without dimensions that nobody differentiates.
    pub fn at_least(&self, bound: &Tensor) -> Tensor {
        let node = NodeBuilder::new("MaximumBackward0", [self]);
        let saved = (node.save(self), node.save(bound));
        let out = self.binary("maximum.default", bound, self.dtype());
        node.finish(out, move |grad| {
            let (this, bound) = (saved.0.unpack(), saved.1.unpack());
            let chosen = {
                // Arguments of a C++ call, the last one first.
                let halved = grad.unary("div.Tensor", grad.dtype());
                let is_equal = this.binary("eq.Tensor", &bound, DType::Bool);
                let chosen = is_equal.binary("where.self", &halved, grad.dtype());
                let _is_smaller = this.binary("lt.Tensor", &bound, DType::Bool);
                chosen
            };
            gradients![chosen]
        })
    }

    /// `Normal(0, 1).icdf(self)`: `loc + scale * erfinv(2 * self - 1) * sqrt(2)`, op by op.
    pub fn normal_quantile(&self) -> Tensor {
        let steps = [MUL, "sub.Tensor", "erfinv.default", MUL, MUL, "add.Tensor"];
        steps.into_iter().fold(self.clone(), |value, op| value.map(op, value.dtype()))
    }
}
