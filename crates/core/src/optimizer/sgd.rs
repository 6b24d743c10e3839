//! SGD (torch/optim/sgd.py), foreach: nothing without momentum; with it one buffer in the gradient's dtype, a copy of
//! the first gradient.

use crate::op::group_by_dtype;
use crate::tensor::Tensor;

use super::state::States;
use super::{Optimizer, Traffic};

pub(super) struct Sgd {
    momentum_buffers: Option<States<Tensor>>,
}

impl Sgd {
    /// SGD without momentum; it only works in place.
    pub(super) fn plain() -> Self {
        Self { momentum_buffers: None }
    }

    pub(super) fn with_momentum(parameters: Vec<Tensor>) -> Self {
        Self { momentum_buffers: Some(States::new(parameters)) }
    }
}

impl Optimizer for Sgd {
    fn step(&mut self) {
        let Some(buffers) = &mut self.momentum_buffers else { return };
        for at in group_by_dtype(buffers.parameters()).into_iter().flatten() {
            buffers.initialize_one(at, |_, gradient| gradient.unary("clone.default", gradient.dtype()));
        }
    }

    fn traffic(&self) -> Traffic {
        // torch/optim/sgd.py: add_; with momentum mul_ and add_ before.
        Traffic::of_passes(if self.momentum_buffers.is_some() { 8 } else { 3 })
    }
}
