//! Copies: to another dtype, to a contiguous layout.

use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Tensor, gradients};

impl Tensor {
    /// `self.to(dtype)`: itself when it has the dtype, else a copy in the same layout.
    pub fn to(&self, dtype: DType) -> Tensor {
        if self.dtype() == dtype {
            return self.clone();
        }
        let node = NodeBuilder::new("ToCopyBackward0", [self]);
        let source = self.dtype();
        let out = self.unary("_to_copy.default", dtype);
        node.finish(out, move |grad| gradients![grad.to(source)])
    }

    /// `self.float()`
    pub fn float(&self) -> Tensor {
        self.to(DType::Float32)
    }

    /// `self.contiguous()`: itself when row-major, else a copy.
    pub fn contiguous(&self) -> Tensor {
        if self.is_contiguous() { self.clone() } else { self.clone_contiguous() }
    }

    /// `self.clone(memory_format=torch.contiguous_format)`
    pub fn clone_contiguous(&self) -> Tensor {
        let node = NodeBuilder::new("CloneBackward0", [self]);
        let out = Tensor::empty(self.context(), "clone.default", *self.sizes(), self.dtype());
        node.finish(out, |grad| gradients![grad.clone()])
    }
}
