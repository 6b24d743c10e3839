//! Division and its relatives (BinaryOps, UnaryOps; formulas of derivatives.yaml): `div`, `reciprocal`, `log`, `rsub`.

use super::elementwise::promote;
use crate::tensor::{NodeBuilder, Saved, Tensor, gradients};

const DIV: &str = "div.Tensor";
const MUL: &str = "mul.Tensor";
const NEG: &str = "neg.default";

impl Tensor {
    /// `self / other`; the divisor is saved for both gradients, the dividend for the divisor's.
    pub fn div(&self, other: &Tensor) -> Tensor {
        let node = NodeBuilder::new("DivBackward0", [self, other]);
        let saved_other = node.save(other);
        let (needs_this, saved_this) = (node.needs(0), node.save_for(1, self));
        let out = self.binary(DIV, other, promote(self, other));
        node.finish(out, move |grad| {
            let (other, this) = (saved_other.unpack(), saved_this.as_ref().map(Saved::unpack));
            let other_grad = this.as_ref().map(|this| divisor_gradient(grad, this, &other));
            let this_grad = needs_this.then(|| grad.div(&other));
            gradients![this_grad, other_grad]
        })
    }

    /// `1 / self`; saves its result.
    pub fn reciprocal(&self) -> Tensor {
        let node = NodeBuilder::new("ReciprocalBackward0", [self]);
        let out = self.unary("reciprocal.default", self.dtype());
        let result = node.save(&out);
        node.finish(out, move |grad| {
            let result = result.unpack();
            let squared = result.unary(MUL, result.dtype());
            let negated = grad.unary(NEG, grad.dtype());
            gradients![negated.binary(MUL, &squared, negated.dtype())]
        })
    }

    /// `log(self)`
    pub fn log(&self) -> Tensor {
        let node = NodeBuilder::new("LogBackward0", [self]);
        let saved = node.save(self);
        let out = self.unary("log.default", self.dtype());
        node.finish(out, move |grad| {
            let this = saved.unpack();
            gradients![grad.binary(DIV, &this, grad.dtype())]
        })
    }

    /// `number - self`
    pub fn rsub_scalar(&self, _number: f64) -> Tensor {
        let node = NodeBuilder::new("RsubBackward1", [self]);
        let out = self.unary("rsub.Scalar", self.dtype());
        node.finish(out, |grad| gradients![grad.unary(NEG, grad.dtype())])
    }
}

/// `-grad * ((self / other) / other)`
pub(super) fn divisor_gradient(grad: &Tensor, this: &Tensor, other: &Tensor) -> Tensor {
    let quotient = this.binary(DIV, other, promote(this, other));
    let twice = quotient.binary(DIV, other, quotient.dtype());
    let negated = grad.unary(NEG, grad.dtype());
    negated.binary(MUL, &twice, promote(&negated, &twice))
}
