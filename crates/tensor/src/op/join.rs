//! `cat` (Shape.cu): a contiguous result; gradients are views of the result's gradient.

use smallvec::SmallVec;

use super::elementwise::promote_types;
use crate::tensor::{Gradients, Layout, NodeBuilder, Shape, Tensor, gradients};

/// `cat(tensors, dim=at)`; mixed dtypes are promoted to the widest inside the kernel, under autocast too.
pub fn cat(tensors: &[&Tensor], at: usize) -> Tensor {
    let node = NodeBuilder::new("CatBackward0", tensors);
    let first = tensors[0];
    let widest = tensors.iter().map(|tensor| tensor.dtype()).max_by_key(|dtype| dtype.size());
    let parts: SmallVec<[u64; 4]> = tensors.iter().map(|tensor| tensor.sizes()[at]).collect();
    let sizes = first.sizes().with(at, parts.iter().sum());
    let out = Tensor::empty(first.context(), "cat.default", sizes, widest.unwrap_or(first.dtype()));
    node.finish(out, move |grad| {
        parts.iter().map(|&length| Some(grad.narrow_any(at, length).into())).collect::<Gradients>()
    })
}

/// Both beside each other in the last dimension, copied into a tensor of the first's dtype that was there before: what
/// `out = first.new_empty(...)`, `out[..., :n].copy_(first)` and `out[..., n:].copy_(second)` make.
pub fn copied_beside(first: &Tensor, second: &Tensor) -> Tensor {
    let last = first.sizes().len() - 1;
    let sizes = first.sizes().with(last, first.size(-1) + second.size(-1));
    let out = Tensor::empty(first.context(), "new_empty.default", sizes, first.dtype());
    copy_into_part(&copy_into_part(&out, first), second)
}

/// `out[..., part].copy_(source)` of a contiguous part.
fn copy_into_part(out: &Tensor, source: &Tensor) -> Tensor {
    copy_into(out, source, Layout::contiguous(*source.sizes()))
}

/// `out[part].copy_(source)` (autograd/custom_function.cpp, `CopySlices`): the gradient is copied, and that of the part again.
pub(super) fn copy_into(out: &Tensor, source: &Tensor, part: Layout) -> Tensor {
    let node = NodeBuilder::new("CopySlices", [out, source]);
    let is_part_of_more = node.needs(0);
    let (whole, dtype) = (out.layout().clone(), source.dtype());
    node.finish(out.detach(), move |grad| {
        let new = |op, layout: &Layout| Tensor::empty_strided(grad.context(), op, layout.clone(), grad.dtype());
        let result = new("new_empty_strided.default", &whole);
        let of_part = new("clone.default", &part);
        let _zeros = is_part_of_more.then(|| new("zeros.default", &part));
        let of_source = of_part.to(dtype);
        gradients![is_part_of_more.then_some(result), of_source]
    })
}

impl Tensor {
    /// `self[..., index] = source` in dimension `at`: the same memory with another past.
    pub fn set_selected(&self, at: usize, _index: u64, source: &Tensor) -> Tensor {
        let part = Layout::strided(self.sizes().removed(at), self.strides().removed(at));
        copy_into(self, source, Layout::elementwise(*source.sizes(), [&part]))
    }
}

/// `stack(scalars)`: a vector of tensors without dimensions, in the dtype that all are promoted to.
pub fn stack_scalars(scalars: &[Tensor]) -> Option<Tensor> {
    let first = scalars.first()?;
    let dtype = scalars.iter().fold(first.dtype(), |dtype, scalar| promote_types(dtype, scalar.dtype()));
    Some(Tensor::empty(first.context(), "stack.default", Shape::new(&[scalars.len() as u64]), dtype))
}

/// `stack(tensors)` along a new first dimension; gradients are views of the result's gradient.
pub fn stack(tensors: &[Tensor]) -> Option<Tensor> {
    stack_along(tensors, 0)
}

/// `stack(tensors, dim=at)` of at least one; gradients are views of the result's gradient.
pub fn stack_along(tensors: &[Tensor], at: usize) -> Option<Tensor> {
    let first = tensors.first()?;
    let node = NodeBuilder::new("StackBackward0", tensors.iter().collect::<Vec<_>>());
    let count = tensors.len();
    let sizes = first.sizes().inserted(at, count as u64);
    let out = Tensor::empty(first.context(), "stack.default", sizes, first.dtype());
    Some(node.finish(out, move |grad| {
        (0..count).map(|_| Some(grad.narrow_any(at, 1).squeeze(at).into())).collect::<Gradients>()
    }))
}

/// `stack(pair, dim=-1)`; gradients are views of the result's gradient.
pub fn stack_last(pair: [&Tensor; 2]) -> Tensor {
    let node = NodeBuilder::new("StackBackward0", pair);
    let last = pair[0].sizes().len();
    let sizes = pair[0].sizes().inserted(last, 2);
    let out = Tensor::empty(pair[0].context(), "stack.default", sizes, pair[0].dtype());
    node.finish(out, move |grad| {
        (0..2).map(|_| Some(grad.narrow_any(last, 1).squeeze(last).into())).collect::<Gradients>()
    })
}

impl Tensor {
    /// `self.unbind(at)` of a dimension of `N`: a view of each; gradients of all are stacked.
    pub fn unbind_at<const N: usize>(&self, at: usize) -> [Tensor; N] {
        let node = NodeBuilder::new("UnbindBackward0", [self]);
        let parts = {
            let _no_grad = self.context().set_grad_enabled(false);
            std::array::from_fn(|_| self.narrow_any(at, 1).squeeze(at))
        };
        let from = *self.sizes();
        node.finish_many(parts, move |grads| {
            let Some(some) = grads.iter().flatten().next() else { return gradients![None::<Tensor>] };
            let part = from.removed(at);
            let zeros = |grad: &Option<Tensor>| {
                grad.is_none().then(|| Tensor::empty(some.context(), "zeros.default", part, some.dtype()))
            };
            let _zeros: Vec<_> = grads.iter().map(zeros).collect();
            gradients![Tensor::empty(some.context(), "stack.default", from, some.dtype())]
        })
    }

    /// `self.unbind(0)`: a view of each row; gradients of all rows are stacked.
    pub fn unbind(&self) -> Vec<Tensor> {
        let node = NodeBuilder::new("UnbindBackward0", [self]);
        let rows = {
            let _no_grad = self.context().set_grad_enabled(false);
            (0..self.size(0)).map(|_| self.narrow_any(0, 1).squeeze(0)).collect()
        };
        let from = *self.sizes();
        node.finish_list(rows, move |grads| {
            let some = grads.iter().flatten().next();
            gradients![some.map(|grad| Tensor::empty(grad.context(), "stack.default", from, grad.dtype()))]
        })
    }
}
