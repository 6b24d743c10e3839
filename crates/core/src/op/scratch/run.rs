//! Carries out an op's steps on a device: outputs become tensors, temporaries come and go.

use std::rc::Rc;

use super::Step;
use crate::dtype::DType;
use crate::tensor::{Context, Shape, Tensor};

/// Runs `steps` for `op`; `describe` gives the sizes, strides and dtype of output number `index`. Outputs are
/// returned in the order of their allocation.
pub(crate) fn run_steps(
    context: &Rc<Context>,
    op: &'static str,
    steps: &[Step],
    describe: impl Fn(u8) -> (Shape, Shape, DType),
) -> Vec<Tensor> {
    let mut outputs = Vec::new();
    let mut temporaries = Vec::new();
    for step in steps {
        match *step {
            Step::Output { index, .. } => {
                let (sizes, strides, dtype) = describe(index);
                outputs.push(Tensor::empty_strided(context, op, sizes, strides, dtype));
            }
            Step::Alloc { bytes, slot } => temporaries.push((slot, Tensor::scratch(context, op, bytes))),
            Step::Free { slot } => temporaries.retain(|(other, _)| *other != slot),
        }
    }
    outputs
}
