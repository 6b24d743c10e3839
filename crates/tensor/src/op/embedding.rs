//! Embedding (Embedding.cu): saves the ids only; its backward sorts them.

use super::scratch::embedding::{EmbeddingBackward, dense_backward};
use super::scratch::{DeviceSteps, contiguous};
use crate::tensor::{NodeBuilder, Shape, Tensor, gradients};

impl Tensor {
    /// `embedding(self as the weight, ids, padding_idx)`
    pub fn embedding(&self, ids: &Tensor, _padding_idx: Option<u64>) -> Tensor {
        let node = NodeBuilder::new("EmbeddingBackward0", [self]);
        let saved_ids = node.save(ids);
        let sizes = ids.sizes().inserted(ids.sizes().len(), self.size(1));
        let op = "embedding.default";
        // Rows are selected by a flat list of ids; expanded ids have to be copied for that.
        let flat = ids.layout().viewed_as(Shape::new(&[ids.numel()]));
        let copied = if flat.is_none() { ids.numel() * ids.dtype().size() } else { 0 };
        let _flat_ids = Tensor::scratch(self.context(), op, copied);
        let out = Tensor::empty(self.context(), op, sizes, self.dtype());
        let weight_sizes = *self.sizes();
        node.finish(out, move |grad| {
            let ids = saved_ids.unpack();
            gradients![embedding_dense_backward(grad, &ids, weight_sizes)]
        })
    }
}

impl Tensor {
    /// `gather(self, -1, indices)`; the gradient is scattered into zeros of the full size.
    pub fn gather(&self, indices: &Tensor) -> Tensor {
        let node = NodeBuilder::new("GatherBackward0", [self]);
        let saved = [node.save(indices), node.save(self)];
        let out = Tensor::empty(self.context(), "gather.default", *indices.sizes(), self.dtype());
        node.finish(out, move |grad| {
            let [_indices, from] = [saved[0].unpack(), saved[1].unpack()];
            gradients![Tensor::empty(grad.context(), "new_zeros.default", *from.sizes(), grad.dtype())]
        })
    }
}

impl Tensor {
    /// `gather(self, 0, indices.expand(...))`: rows of a matrix, or numbers of a vector, chosen each by one index.
    pub fn gather_rows(&self, indices: &Tensor) -> Tensor {
        let sizes = self.sizes().with(0, indices.size(0));
        self.gather(&indices.expand(&sizes))
    }
}

pub(super) fn embedding_dense_backward(grad: &Tensor, ids: &Tensor, weight_sizes: Shape) -> Tensor {
    let call = EmbeddingBackward {
        indices: ids.numel(),
        width: weight_sizes[1],
        rows: weight_sizes[0],
        index: ids.dtype(),
        dtype: grad.dtype(),
        grad_contiguous: grad.is_contiguous(),
        indices_contiguous: ids.is_contiguous(),
    };
    let steps = DeviceSteps::new(grad.context(), |device| dense_backward(&call, device));
    let op = "embedding_dense_backward.default";
    steps.run(grad.context(), op, |_| contiguous(weight_sizes, grad.dtype())).take(0)
}
