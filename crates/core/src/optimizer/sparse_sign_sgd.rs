//! Sign-SGD of an embedding table of which a batch touches few rows (HRM's
//! `CastedSparseEmbeddingSignSGD_Distributed`): no state, and temporaries of the batch's rows.

use crate::dtype::DType;
use crate::model::hrm::CastedSparseEmbedding;
use crate::op::{full, index};
use crate::tensor::Tensor;

use super::{Optimizer, Traffic};

pub(crate) struct SparseSignSgd {
    weights: Tensor,
    local_weights: Tensor,
    local_ids: Tensor,
    world_size: u64,
}

impl SparseSignSgd {
    pub(crate) fn new(embedding: &CastedSparseEmbedding, world_size: u64) -> Self {
        Self {
            weights: embedding.weights.clone(),
            local_weights: embedding.local_weights.clone(),
            local_ids: embedding.local_ids.clone(),
            world_size,
        }
    }

    /// `zero_grad()`
    pub(crate) fn zero_grad(&self) {
        self.local_weights.set_grad(None);
    }
}

impl SparseSignSgd {
    /// The tensors of all ranks in one; the rank's own, where there is no other.
    fn all_gather(&self, local: &Tensor) -> Tensor {
        if self.world_size == 1 {
            return local.clone();
        }
        let mut sizes = local.sizes().to_vec();
        sizes[0] *= self.world_size;
        full(local.context(), "empty.memory_format", &sizes, local.dtype())
    }
}

impl Optimizer for SparseSignSgd {
    /// The rows of a batch are taken to be of different puzzles, which is the most.
    fn step(&mut self) {
        let Some(gradient) = self.local_weights.grad() else { return };
        let context = gradient.context();
        let all_weights_grad = self.all_gather(&gradient);
        let all_ids = self.all_gather(&self.local_ids);
        let grad_ids = all_ids.map("unique.default", all_ids.dtype());
        let _inverse = full(context, "unique.default", &[grad_ids.size(0)], DType::Int64);
        let grad = full(context, "zeros.default", all_weights_grad.sizes(), all_weights_grad.dtype());
        // Indices are int64 inside, to read the rows and to write them back.
        let indices = || grad_ids.to(DType::Int64);
        let _p = index(&self.weights, grad.sizes(), &[Some(&indices())]);
        drop(grad.map("sign.default", grad.dtype()));
        drop(indices());
    }

    fn traffic(&self) -> Traffic {
        Traffic::COUNTED_ELSEWHERE
    }
}
