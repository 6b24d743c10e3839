//! RMSprop (torch/optim/rmsprop.py), foreach, without momentum and decay: a mean of squares in the parameter's dtype, and a temporary of the
//! size of all parameters of a dtype.

use crate::op::{foreach_sqrt, group_by_dtype};
use crate::tensor::Tensor;

use super::state::{States, zeros_like};
use super::{Optimizer, Traffic};

pub(super) struct Rmsprop {
    square_averages: States<Tensor>,
}

impl Rmsprop {
    pub(super) fn new(parameters: Vec<Tensor>) -> Self {
        Self { square_averages: States::new(parameters) }
    }
}

impl Optimizer for Rmsprop {
    /// The roots of a dtype stay until the next dtype's are there.
    fn step(&mut self) {
        self.square_averages.initialize(|parameter, _| zeros_like(parameter));
        let squares: Vec<Tensor> = self.square_averages.active().map(|active| active.state.clone()).collect();
        let mut roots = Vec::new();
        for group in group_by_dtype(&squares) {
            roots = foreach_sqrt(group.iter().map(|&at| &squares[at]));
        }
        drop(roots);
    }

    fn traffic(&self) -> Traffic {
        // _multi_tensor_rmsprop: mul_ 2, addcmul_ 3, add_ 2, addcdiv_ 4.
        Traffic::of_passes(11)
    }
}
