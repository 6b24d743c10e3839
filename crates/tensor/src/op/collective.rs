//! Collectives of the ranks that share a layer, as `DTensor` calls them (torch/distributed/tensor, PyTorch 2.11): what a rank receives
//! lies in new memory.

use crate::tensor::{NodeBuilder, Shape, Tensor, gradients};
use tonnage_alloc::trace::Category;

use super::embedding::embedding_dense_backward;
use crate::dtype::DType;

const ALL_REDUCE: &str = "_c10d_functional.all_reduce";

impl Tensor {
    /// `DTensor.from_local(self, [Replicate()])` before a product with a part of the weight: the gradients of all parts are summed.
    pub fn replicated(&self) -> Tensor {
        let node = NodeBuilder::new("_FromTorchTensorBackward", [self]);
        node.finish(self.alias(self.layout().clone()), |grad| gradients![grad.all_reduce()])
    }

    /// `redistribute([Replicate()])` of a part of a sum, whose gradient each rank has already.
    pub fn summed_over_ranks(&self) -> Tensor {
        let node = NodeBuilder::new("RedistributeBackward", [self]);
        node.finish(self.all_reduce(), |grad| gradients![grad.clone()])
    }

    /// The same of a part of the last dimension: what was gathered lies rank after rank, and is put in order by a copy.
    pub fn gathered_over_ranks(&self, ranks: u64) -> Tensor {
        let node = NodeBuilder::new("RedistributeBackward", [self]);
        let (last, part) = (self.sizes().len() - 1, *self.sizes());
        let gathered = {
            let _category = self.context().enter_category(Category::Communication);
            let sizes = part.with(0, part[0].saturating_mul(ranks));
            Tensor::empty(self.context(), "_c10d_functional.all_gather_into_tensor", sizes, self.dtype())
        };
        let sizes = part.with(last, part[last].saturating_mul(ranks));
        let out = if part.iter().take(last).all(|&size| size == 1) {
            // Rank after rank is the order (torch/_utils.py, `_maybe_view_chunk_cat`).
            return node.finish(gathered.view(&sizes), move |grad| gradients![grad.own_part(part)]);
        } else {
            Tensor::empty(self.context(), "cat.default", sizes, self.dtype())
        };
        drop(gathered);
        node.finish(out, move |grad| gradients![grad.own_part(part)])
    }

    /// `embedding(self as this rank's rows of the weight, ids)`, a part of a sum: ids of other ranks' rows are masked. The gradient is computed
    /// for all rows before this rank's part is copied out of it.
    pub fn embedding_over_ranks(&self, ids: &Tensor, ranks: u64) -> Tensor {
        let own_rows = *self.sizes();
        let all_rows = own_rows.with(0, own_rows[0].saturating_mul(ranks));
        let part = NodeBuilder::new("RedistributeBackward", [self]);
        let weight = part.finish(Tensor::nowhere(self.context(), all_rows, self.dtype()), move |whole| {
            let part = whole.own_part(own_rows);
            // The node's result is the whole until the part has met the head's gradient.
            whole.context().keep_for_delivery(whole);
            gradients![part]
        });
        let node = NodeBuilder::new("EmbeddingBackward0", [&weight]);
        let saved_ids = node.save(ids);
        let (mask, masked) = masked_ids(ids);
        let sizes = ids.sizes().inserted(ids.sizes().len(), own_rows[1]);
        let out = Tensor::empty(self.context(), "embedding.default", sizes, self.dtype());
        drop((masked, mask));
        node.finish(out, move |grad| gradients![embedding_dense_backward(grad, &saved_ids.unpack(), all_rows)])
    }

    fn all_reduce(&self) -> Tensor {
        Tensor::empty(self.context(), ALL_REDUCE, *self.sizes(), self.dtype())
    }

    /// This rank's part, cloned.
    fn own_part(&self, sizes: Shape) -> Tensor {
        Tensor::empty(self.context(), "clone.default", sizes, self.dtype())
    }
}

/// Which ids other ranks have, and where this rank looks the others up (placement_types.py, `_mask_tensor`).
fn masked_ids(ids: &Tensor) -> (Tensor, Tensor) {
    let mask = {
        let _bounds = ["lt.Scalar", "ge.Scalar"].map(|op| ids.map(op, DType::Bool));
        ids.map("bitwise_or.Tensor", DType::Bool)
    };
    let cloned = ids.map("clone.default", ids.dtype());
    let masked = cloned.map("sub.Tensor", ids.dtype());
    (mask, masked)
}
