//! `AdamWScheduleFree` (schedulefree 1.4, adamw_schedulefree.py), foreach: a copy of the weights (`z`) and the second moment. A step makes one
//! temporary of the size of all parameters and takes the gradients for its own results.

use crate::tensor::Tensor;

use super::state::{States, zeros_like};
use super::{Optimizer, Traffic};

struct Averaged {
    _z: Tensor,
    exp_avg_sq: Tensor,
}

pub(super) struct AdamWScheduleFree {
    states: States<Averaged>,
}

impl AdamWScheduleFree {
    pub(super) fn new(parameters: Vec<Tensor>) -> Self {
        Self { states: States::new(parameters) }
    }
}

impl Optimizer for AdamWScheduleFree {
    fn step(&mut self) {
        self.states.initialize(|parameter, _| Averaged {
            _z: parameter.unary("clone.default", parameter.dtype()),
            exp_avg_sq: zeros_like(parameter),
        });
        let divided = |square: &Tensor| square.unary("div.Tensor", square.dtype());
        let denominators: Vec<Tensor> = self.states.active().map(|active| divided(&active.state.exp_avg_sq)).collect();
        drop(denominators);
    }

    fn traffic(&self) -> Traffic {
        // _foreach_mul_ 2, addcmul_ 3, sqrt_ 2, add_ 2, div_ 3, lerp_ 3, add_ 3, sub_ 3.
        Traffic::of_passes(21)
    }
}
