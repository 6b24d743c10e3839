//! Kernels of fms-acceleration (plugins/fused-ops-and-kernels at 876e2ed), which come from Unsloth's: they turn in place, and write
//! gradients over what they read.

use super::ReduceKind;
use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Saved, Shape, Tensor, gradients};

/// Classes that a program of the cross-entropy's kernel reads at once (`MAX_FUSED_SIZE`).
const MAX_FUSED_SIZE: u64 = 65_536;

impl Tensor {
    /// `Fast_RMS_Layernorm.apply(self, weight, eps)`: a number of each row is kept. The weight gets no gradient.
    pub fn fast_rms_layernorm(&self, weight: &Tensor) -> Tensor {
        let node = NodeBuilder::new("Fast_RMS_LayernormBackward", [self, weight]);
        let op = "Fast_RMS_Layernorm";
        let out = Tensor::empty(self.context(), op, *self.sizes(), self.dtype());
        let inverse = Tensor::empty(self.context(), op, rows_of(self), DType::Float32);
        let saved = [self, weight, &inverse].map(|tensor| node.save(tensor));
        drop(inverse);
        node.finish(out, move |grad| {
            let _read = saved.each_ref().map(Saved::unpack);
            gradients![grad.alias(grad.layout().clone()), None]
        })
    }

    /// `Fast_RoPE_Embedding.apply(self.transpose(1, 2), cos, sin).transpose(1, 2)`: the context holds the tables without saving them.
    fn fast_rope(&self, cos: &Tensor, sin: &Tensor) -> Tensor {
        let rows_first = self.transpose(1, 2);
        let node = NodeBuilder::new("Fast_RoPE_EmbeddingBackward", [&rows_first]);
        let tables = [cos, sin].map(Tensor::detach);
        let turned = rows_first.alias(rows_first.layout().clone());
        node.finish(turned, move |grad| {
            let _tables = &tables;
            gradients![grad.contiguous()]
        })
        .transpose(1, 2)
    }

    /// `Fast_CrossEntropyLoss.apply(self, labels)` of [rows, classes]: a value for each row; the gradient takes the logits' place.
    fn fast_cross_entropy_loss(&self, labels: &Tensor) -> Tensor {
        let node = NodeBuilder::new("Fast_CrossEntropyLossBackward", [self]);
        let op = "Fast_CrossEntropyLoss";
        let empty = |sizes| Tensor::empty(self.context(), op, sizes, DType::Float32);
        let losses = empty(rows_of(self));
        let chunks = self.size(1).div_ceil(MAX_FUSED_SIZE);
        let logsumexp = if chunks == 1 {
            empty(rows_of(self))
        } else {
            let of_chunks = empty(Shape::new(&[self.size(0), chunks]));
            let logsumexp = of_chunks.logsumexp_rows();
            labels.map("eq.Scalar", DType::Bool);
            logsumexp
        };
        let saved = [self, &logsumexp, labels].map(|tensor| node.save(tensor));
        drop(logsumexp);
        node.finish(losses, move |_grad| {
            let [logits, _logsumexp, _labels] = saved.each_ref().map(Saved::unpack);
            gradients![logits.alias(logits.layout().clone())]
        })
    }

    /// `torch.logsumexp(self, dim=1)` (ReduceOps.cpp, `logsumexp_out_impl`).
    fn logsumexp_rows(&self) -> Tensor {
        let maxes = Tensor::empty(self.context(), "amax.default", rows_of(self), self.dtype());
        {
            let magnitudes = maxes.unary("abs.default", maxes.dtype());
            magnitudes.map("eq.Scalar", DType::Bool);
        }
        let _powers = self.unary("sub.Tensor", self.dtype());
        Tensor::empty(self.context(), "sum.IntList_out", rows_of(self), self.dtype())
    }

    /// `FastCrossEntropyLoss()(self, labels)`: the mean over the labels that count, or the sum by so many.
    pub fn fast_cross_entropy(&self, labels: &Tensor, num_items: Option<&Tensor>) -> Tensor {
        let losses = self.fast_cross_entropy_loss(labels);
        let counted = num_items.cloned().unwrap_or_else(|| {
            let counts = labels.map("ne.Scalar", DType::Bool);
            counts.reduce_all("count_nonzero.dim_IntList", ReduceKind::Sum, DType::Int64)
        });
        losses.sum().div_by(&counted)
    }
}

fn rows_of(tensor: &Tensor) -> Shape {
    Shape::new(&[tensor.numel() / tensor.size(-1).max(1)])
}

/// `fast_rope_embedding(q, k, cos, sin)` of [batch, heads, tokens, head_dim].
pub fn fast_rope_embedding(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    let q = q.fast_rope(cos, sin);
    let k = k.fast_rope(cos, sin);
    (q, k)
}
