//! `where` and comparisons (TensorCompare.cpp): a condition chooses between two tensors, and sends each gradient its way.

use super::create::full;
use super::elementwise::promote;
use crate::tensor::{Layout, NodeBuilder, Tensor, broadcast, gradients};

impl Tensor {
    /// `where(self as the condition, kept, other)`
    pub fn choose(&self, kept: &Tensor, other: &Tensor) -> Tensor {
        let node = NodeBuilder::new("WhereBackward0", [kept, other]);
        let needs = [node.needs(0), node.needs(1)];
        let condition = node.save(self);
        let sizes = broadcast(&broadcast(self.sizes(), kept.sizes()), other.sizes());
        let layout = Layout::elementwise(sizes, [self.layout(), kept.layout(), other.layout()]);
        self.context().count_bytes(self.bytes().saturating_add(other.bytes()));
        let out = Tensor::empty_strided(self.context(), WHERE, layout, promote(kept, other));
        node.finish(out, move |grad| {
            let condition = condition.unpack();
            let other = needs[1].then(|| condition.masked(grad));
            let kept = needs[0].then(|| condition.masked(grad));
            gradients![kept, other]
        })
    }

    /// `where(self as the condition, kept, number)`; the number is made a tensor first.
    pub fn choose_or_number(&self, kept: &Tensor, _number: f64) -> Tensor {
        let number = full(self.context(), "scalar_tensor.default", &[], kept.dtype());
        self.choose(kept, &number)
    }

    /// `where(self as the condition, number, other)`
    pub fn choose_number(&self, _number: f64, other: &Tensor) -> Tensor {
        self.choose_or_number(other, 0.0)
    }

    /// `masked_fill(self, mask, number)`, contiguous whatever it is made from (TensorAdvancedIndexing.cpp).
    pub fn masked_fill(&self, mask: &Tensor, _number: f64) -> Tensor {
        let node = NodeBuilder::new("MaskedFillBackward0", [self]);
        let saved_mask = node.save(mask);
        let out = self.filled(mask);
        node.finish(out, move |grad| gradients![grad.filled(&saved_mask.unpack())])
    }

    fn filled(&self, mask: &Tensor) -> Tensor {
        self.context().count_bytes(self.bytes().saturating_add(mask.bytes()));
        Tensor::empty(self.context(), "masked_fill.Scalar", broadcast(self.sizes(), mask.sizes()), self.dtype())
    }

    /// The gradient where the condition says so, zeros elsewhere.
    fn masked(&self, grad: &Tensor) -> Tensor {
        let _zero = full(self.context(), "scalar_tensor.default", &[], grad.dtype());
        self.binary(WHERE, grad, grad.dtype())
    }
}

const WHERE: &str = "where.self";
