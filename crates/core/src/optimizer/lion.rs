//! Lion as in lion-pytorch 0.2: one momentum in the parameter's dtype, made as each parameter is reached, and two
//! temporaries of the parameter's size.

use crate::tensor::Tensor;

use super::state::{States, zeros_like};
use super::{Optimizer, Traffic};

pub(super) struct Lion {
    states: States<Tensor>,
}

impl Lion {
    pub(super) fn new(parameters: Vec<Tensor>) -> Self {
        Self { states: States::new(parameters) }
    }
}

impl Optimizer for Lion {
    fn step(&mut self) {
        for at in 0..self.states.parameters().len() {
            self.states.initialize_one(at, |parameter, _| zeros_like(parameter));
            if let Some(active) = self.states.active_at(at) {
                let momentum = active.state.unary("clone.default", active.state.dtype());
                let _update = momentum.add(&active.gradient);
                drop(momentum);
            }
        }
    }

    fn traffic(&self) -> Traffic {
        // lion-pytorch: decay 2, two lerps 6, sign_ 2, add_ 3.
        Traffic::of_passes(13)
    }
}
