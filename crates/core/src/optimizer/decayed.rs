//! Weight decay that is added to the gradients (`_foreach_add(device_grads, device_params, alpha=weight_decay)`, torch/optim of PyTorch 2.11):
//! a step makes a copy of the gradients of a dtype. Decay that shrinks the weights instead, as AdamW's, makes nothing.

use crate::tensor::Tensor;

/// Whether an optimizer adds decay to its gradients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Decay {
    /// `weight_decay` is 0.
    Off,
    Added,
}

impl Decay {
    /// The gradients of one list of parameters with their decay: a copy of each, where there is any.
    pub(super) fn copies<'a>(self, parameters: impl Iterator<Item = &'a Tensor>) -> Vec<Tensor> {
        if self == Self::Off {
            return Vec::new();
        }
        let copy = |parameter: &Tensor| {
            let gradient = parameter.grad()?;
            Some(gradient.binary("_foreach_add.List", parameter, gradient.dtype()))
        };
        parameters.filter_map(copy).collect()
    }
}
