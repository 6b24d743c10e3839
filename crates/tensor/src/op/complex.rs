//! Complex numbers (ViewComplex.cpp, ConjugateFallback.cpp), which are pairs of fp32 in a last dimension of two here.

use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Tensor, gradients};

impl Tensor {
    /// `torch.polar(torch.ones_like(self), self)`, of angles that nobody differentiates.
    pub fn polar(&self) -> Tensor {
        let _ones = self.ones_like();
        let mut sizes = self.sizes().to_vec();
        sizes.push(2);
        self.unsqueeze(self.sizes().len()).expand(&sizes).map("polar.default", DType::Float32)
    }

    /// `torch.view_as_complex(self.float().reshape(*self.shape[:-1], -1, 2))`
    pub fn as_complex(&self) -> Tensor {
        let mut sizes = self.sizes().to_vec();
        if let Some(last) = sizes.last_mut() {
            *last /= 2;
        }
        sizes.push(2);
        self.float().reshape(&sizes).with_whole_gradient("ViewAsComplexBackward0")
    }

    /// `torch.view_as_real(self).flatten(-2)` of complex numbers
    pub fn as_real(&self) -> Tensor {
        let mut sizes = self.sizes().to_vec();
        sizes.pop();
        if let Some(last) = sizes.last_mut() {
            *last *= 2;
        }
        self.with_whole_gradient("ViewAsRealBackward0").reshape(&sizes)
    }

    /// The same memory; its gradient is made contiguous.
    fn with_whole_gradient(&self, name: &'static str) -> Tensor {
        let node = NodeBuilder::new(name, [self]);
        node.finish(self.alias(self.layout().clone()), |grad| gradients![grad.contiguous()])
    }

    /// `self * other` of complex numbers, of which nobody differentiates the other; the gradient copies its conjugate.
    pub fn mul_complex(&self, other: &Tensor) -> Tensor {
        let node = NodeBuilder::new("MulBackward0", [self]);
        let saved = node.save(other);
        let out = self.binary("mul.Tensor", other, DType::Float32);
        node.finish(out, move |grad| {
            let conjugate = saved.unpack().clone_contiguous();
            gradients![grad.binary("mul.Tensor", &conjugate, DType::Float32)]
        })
    }
}
