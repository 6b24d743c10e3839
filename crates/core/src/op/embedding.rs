//! Embedding (Embedding.cu): saves the ids only; its backward sorts them.

use crate::tensor::{NodeBuilder, Shape, Tensor, gradients};

impl Tensor {
    /// `embedding(self as the weight, ids)`
    pub fn embedding(&self, ids: &Tensor) -> Tensor {
        let node = NodeBuilder::new("EmbeddingBackward0", &[self]);
        let saved_ids = node.save(ids);
        let sizes = ids.sizes().inserted(ids.sizes().len(), self.size(1));
        let out = Tensor::empty(self.context(), "embedding.default", sizes, self.dtype());
        let weight_sizes = *self.sizes();
        node.finish(out, move |grad| {
            let ids = saved_ids.unpack();
            gradients![embedding_dense_backward(grad, &ids, weight_sizes)]
        })
    }
}

fn embedding_dense_backward(grad: &Tensor, _ids: &Tensor, weight_sizes: Shape) -> Tensor {
    let op = "embedding_dense_backward.default";
    Tensor::empty(grad.context(), op, weight_sizes, grad.dtype())
}
