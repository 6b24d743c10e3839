//! Optimizers, a file each: what each keeps between steps, and what one step allocates.
//!
//! One more optimizer is one file here and one line in [`build`].

mod adam;
mod clip;

pub(crate) use clip::clip_grad_norm;

use crate::spec::OptimizerKind;
use crate::tensor::Tensor;

/// An optimizer over the trained parameters.
pub(crate) trait Optimizer {
    /// One `optimizer.step()` over the parameters that have gradients.
    fn step(&mut self);
}

/// The optimizer of a kind.
pub(crate) fn build(kind: OptimizerKind, parameters: &[Tensor]) -> Box<dyn Optimizer> {
    let parameters = parameters.to_vec();
    match kind {
        _ => Box::new(adam::Adam::new(parameters, adam::Implementation::Foreach)),
    }
}
