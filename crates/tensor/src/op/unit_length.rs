//! `normalize` (torch/nn/functional.py): rows divided by their length, which is a vector's norm with a least value.

use super::elementwise::promote;
use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Saved, Tensor, gradients, is_autocast};

impl Tensor {
    /// The same directions along the last dimension, of length one (`normalize(self, p=2, dim=-1)`).
    pub fn unit_length(&self) -> Tensor {
        let denom = self.vector_norm().clamp_min(1e-12);
        self.div(&denom.expand(self.sizes()))
    }

    /// Lengths along the last dimension, which stays as one number (`norm(2, dim=-1, keepdim=True)`); autocast sets the dtype to fp32,
    /// without a copy.
    pub fn vector_norm(&self) -> Tensor {
        let node = NodeBuilder::new("LinalgVectorNormBackward0", [self]);
        let saved = node.save(self);
        let dtype = if is_autocast(self) { DType::Float32 } else { self.dtype() };
        let norm = self.norm_of_last(dtype);
        let saved_norm = node.save(&norm);
        node.finish(norm, move |grad| {
            let [this, norm] = [&saved, &saved_norm].map(Saved::unpack);
            let dtype = promote(&this, &norm);
            let direction = this.binary("div.Tensor", &norm, dtype);
            let _is_zero = norm.map("eq.Scalar", DType::Bool);
            gradients![direction.binary("mul.Tensor", grad, dtype)]
        })
    }
}
