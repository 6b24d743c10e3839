//! SGD (torch/optim/sgd.py), foreach: nothing without momentum; with it one buffer in the gradient's dtype, a copy of
//! the first gradient. Decay makes a copy of the gradients of a dtype.

use crate::op::group_by_dtype;
use crate::tensor::Tensor;

use super::decayed::Decay;
use super::state::States;
use super::{Optimizer, Traffic};

pub(super) struct Sgd {
    buffers: States<Tensor>,
    has_momentum: bool,
    decay: Decay,
}

impl Sgd {
    /// SGD without momentum; without decay it only works in place.
    pub(super) fn plain(parameters: Vec<Tensor>, decay: Decay) -> Self {
        Self { buffers: States::new(parameters), has_momentum: false, decay }
    }

    pub(super) fn with_momentum(parameters: Vec<Tensor>, decay: Decay) -> Self {
        Self { has_momentum: true, ..Self::plain(parameters, decay) }
    }
}

impl Optimizer for Sgd {
    fn step(&mut self) {
        let parameters = self.buffers.parameters();
        let stepped: Vec<usize> = (0..parameters.len()).filter(|&at| parameters[at].grad().is_some()).collect();
        let parameters: Vec<Tensor> = stepped.iter().map(|&at| parameters[at].clone()).collect();
        for group in group_by_dtype(&parameters) {
            let decayed = self.decay.copies(group.iter().map(|&at| &parameters[at]));
            for at in group.into_iter().map(|at| stepped[at]).filter(|_| self.has_momentum) {
                self.buffers.initialize_one(at, |_, gradient| gradient.unary("clone.default", gradient.dtype()));
            }
            drop(decayed);
        }
    }

    fn traffic(&self) -> Traffic {
        // torch/optim/sgd.py: add_; with momentum mul_ and add_ before.
        Traffic::of_passes(if self.has_momentum { 8 } else { 3 })
    }
}
