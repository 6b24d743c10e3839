//! Dropout (Dropout.cu): a one-byte mask per element is saved, the output only if a consumer saves it.

use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Tensor, gradients};

impl Tensor {
    /// `dropout(self, p, train)`; without training or probability it is the input itself.
    pub fn dropout(&self, p: f64, train: bool) -> Tensor {
        if p == 0.0 || !train {
            return self.clone();
        }
        let node = NodeBuilder::new("NativeDropoutBackward0", [self]);
        let mask = self.unary("native_dropout.default", DType::Bool);
        let out = self.unary("native_dropout.default", self.dtype());
        let saved_mask = node.save(&mask);
        node.finish(out, move |grad| {
            let mask = saved_mask.unpack();
            gradients![grad.binary("native_dropout_backward.default", &mask, grad.dtype())]
        })
    }
}
