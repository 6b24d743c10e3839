//! Carries out an op's steps on a device: outputs become tensors, temporaries come and go.

use std::rc::Rc;

use smallvec::SmallVec;

use super::Step;
use crate::dtype::DType;
use crate::tensor::{Context, Layout, Shape, Tensor};

/// What an output looks like.
pub(crate) type Described = (Layout, DType);

/// An op's output tensors by their index in the aten schema.
pub(crate) struct Outputs {
    context: Rc<Context>,
    tensors: SmallVec<[(u8, Tensor); 4]>,
}

impl Outputs {
    /// All outputs, in the order of their allocation.
    pub(crate) fn into_vec(self) -> Vec<Tensor> {
        self.tensors.into_iter().map(|(_, tensor)| tensor).collect()
    }

    /// Output number `index`; a tensor without memory where the op makes none.
    pub(crate) fn take(&mut self, index: u8) -> Tensor {
        match self.tensors.iter().position(|(at, _)| *at == index) {
            Some(at) => self.tensors.remove(at).1,
            None => Tensor::nowhere(&self.context, Shape::new(&[]), DType::Float32),
        }
    }
}

/// Runs `steps` for `op`; `describe` gives sizes, strides and dtype of output number `index`.
pub(crate) fn run_steps(
    context: &Rc<Context>,
    op: &'static str,
    steps: &[Step],
    describe: impl Fn(u8) -> Described,
) -> Outputs {
    let mut outputs = Outputs { context: Rc::clone(context), tensors: SmallVec::new() };
    let mut temporaries: SmallVec<[(u32, crate::tensor::Scratch); 4]> = SmallVec::new();
    for step in steps {
        match *step {
            Step::Output { index, .. } => {
                let (layout, dtype) = describe(index);
                outputs.tensors.push((index, Tensor::empty_strided(context, op, layout, dtype)));
            }
            Step::Alloc { bytes, slot } => temporaries.push((slot, Tensor::scratch(context, op, bytes))),
            Step::Free { slot } => temporaries.retain(|(other, _)| *other != slot),
        }
    }
    outputs
}

/// Contiguous sizes of a dtype.
pub(crate) fn contiguous(sizes: Shape, dtype: DType) -> Described {
    (Layout::contiguous(sizes), dtype)
}

/// The layout of `empty_like(tensor)`.
pub(crate) fn like(tensor: &Tensor) -> Described {
    (tensor.dense_layout(), tensor.dtype())
}
