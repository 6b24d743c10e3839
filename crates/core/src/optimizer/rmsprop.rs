//! RMSprop (torch/optim/rmsprop.py), foreach, without momentum: a mean of squares in the parameter's dtype, and a temporary of the
//! size of all parameters of a dtype, with decay two.

use crate::op::{foreach_sqrt, group_by_dtype};
use crate::tensor::Tensor;

use super::decayed::Decay;
use super::state::{States, zeros_like};
use super::{Optimizer, Traffic};

pub(super) struct Rmsprop {
    square_averages: States<Tensor>,
    decay: Decay,
}

impl Rmsprop {
    pub(super) fn new(parameters: Vec<Tensor>, decay: Decay) -> Self {
        Self { square_averages: States::new(parameters), decay }
    }
}

impl Optimizer for Rmsprop {
    /// The roots of a dtype stay until the next dtype's are there, decayed gradients until the next are made.
    fn step(&mut self) {
        self.square_averages.initialize(|parameter, _| zeros_like(parameter));
        let active = self.square_averages.active().map(|active| (active.parameter.clone(), active.state.clone()));
        let (parameters, squares): (Vec<Tensor>, Vec<Tensor>) = active.unzip();
        let (mut roots, mut decayed) = (Vec::new(), Vec::new());
        for group in group_by_dtype(&squares) {
            decayed.clear();
            decayed.extend(self.decay.copies(group.iter().map(|&at| &parameters[at])));
            roots = foreach_sqrt(group.iter().map(|&at| &squares[at]));
        }
        drop((roots, decayed));
    }

    fn traffic(&self) -> Traffic {
        // _multi_tensor_rmsprop: mul_ 2, addcmul_ 3, add_ 2, addcdiv_ 4.
        Traffic::of_passes(11)
    }
}
