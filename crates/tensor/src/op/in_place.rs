//! In-place sums into views (autograd/custom_function.cpp, `CopySlices`): the base gets another past, and so has every view of it.

use super::join::copy_into;
use crate::tensor::{Layout, NodeBuilder, Tensor, gradients};

impl Tensor {
    /// `view = self.permute(dims); view += other`: the view, of memory that is a new tensor's own.
    pub fn permute_and_add(&self, dims: [usize; 4], other: &Tensor) -> Tensor {
        let view = self.layout().permuted(dims);
        view_anew(&add_into(self, other, &view), view)
    }

    /// `self[1:] += other`, which Python ends by copying the sum to where it stands.
    pub fn add_to_rest(&self, other: &Tensor) -> Tensor {
        let rest = Layout::strided(self.sizes().with(0, self.size(0) - 1), self.strides());
        let sum = add_into(self, other, &rest);
        let view = view_anew(&sum, rest.clone());
        copy_into(&sum, &view, Layout::contiguous(rest.sizes))
    }
}

/// The base of a view that `other` was added to: the gradient is copied, and that of the view again.
fn add_into(base: &Tensor, other: &Tensor, view: &Layout) -> Tensor {
    let node = NodeBuilder::new("CopySlices", [base, other]);
    let (whole, part) = (base.layout().clone(), Layout::contiguous(view.sizes));
    node.finish(base.detach(), move |grad| {
        let new = |op, layout: &Layout| Tensor::empty_strided(grad.context(), op, layout.clone(), grad.dtype());
        let result = new("new_empty_strided.default", &whole);
        gradients![result, new("clone.default", &part)]
    })
}

/// A view whose base was changed: its gradient is written into zeros.
fn view_anew(base: &Tensor, view: Layout) -> Tensor {
    let node = NodeBuilder::new("AsStridedBackward0", [base]);
    let whole = base.layout().clone();
    node.finish(base.alias(view), move |grad| {
        gradients![Tensor::empty_strided(grad.context(), "new_zeros.default", whole.clone(), grad.dtype())]
    })
}
