//! `cat` (Shape.cu): a contiguous result; gradients are views of the result's gradient.

use smallvec::SmallVec;

use crate::dtype::DType;
use crate::tensor::{Gradients, NodeBuilder, Shape, Tensor, is_autocast};

/// `cat(tensors, dim=at)`; under autocast all are cast to the widest dtype among them.
pub(crate) fn cat(tensors: &[&Tensor], at: usize) -> Tensor {
    let first = tensors[0];
    let widest =
        if tensors.iter().any(|tensor| tensor.dtype() == DType::Float32) { DType::Float32 } else { first.dtype() };
    let cast: SmallVec<[Tensor; 4]> = tensors
        .iter()
        .map(
            |tensor| if is_autocast(first) && tensor.dtype() != widest { tensor.to(widest) } else { (*tensor).clone() },
        )
        .collect();
    let inputs: SmallVec<[&Tensor; 4]> = cast.iter().collect();
    let node = NodeBuilder::new("CatBackward0", &inputs);
    let total = cast.iter().map(|tensor| tensor.sizes()[at]).sum();
    let parts: SmallVec<[u64; 4]> = cast.iter().map(|tensor| tensor.sizes()[at]).collect();
    let out = Tensor::empty(first.context(), "cat.default", first.sizes().with(at, total), widest);
    node.finish(out, move |grad| parts.iter().map(|&length| Some(grad.narrow(at, length))).collect::<Gradients>())
}

/// `stack(scalars)`: a vector of tensors without dimensions, fp32 when they differ in dtype.
pub(crate) fn stack_scalars(scalars: &[Tensor]) -> Option<Tensor> {
    let first = scalars.first()?;
    let same = scalars.iter().all(|scalar| scalar.dtype() == first.dtype());
    let dtype = if same { first.dtype() } else { DType::Float32 };
    Some(Tensor::empty(first.context(), "stack.default", Shape::new(&[scalars.len() as u64]), dtype))
}
