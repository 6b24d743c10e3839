//! schedulefree's optimizers (schedulefree 1.4, adamw_schedulefree.py, radam_schedulefree.py, sgd_schedulefree.py), foreach: a copy of the weights
//! (`z`) and, but for SGD, the second moment. A step of Adam's makes one temporary of the size of all parameters and takes the gradients for
//! its own results.

use crate::tensor::Tensor;

use super::state::{States, zeros_like};
use super::{Optimizer, Traffic};

/// The step from which RAdam's variance is simulated as tractable: with a beta2 of 0.999 it is from the fifth on (`rho_t > 4`), and what a
/// step allocates has settled before.
const RECTIFIED_STEP: u64 = 3;

/// Whose step is averaged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Averaged {
    AdamW,
    RAdam,
    Sgd,
}

struct State {
    _z: Tensor,
    exp_avg_sq: Option<Tensor>,
}

pub(super) struct ScheduleFree {
    states: States<State>,
    averaged: Averaged,
    steps: u64,
}

impl ScheduleFree {
    pub(super) fn new(parameters: Vec<Tensor>, averaged: Averaged) -> Self {
        Self { states: States::new(parameters), averaged, steps: 0 }
    }
}

impl Optimizer for ScheduleFree {
    fn step(&mut self) {
        let averaged = self.averaged;
        self.steps += 1;
        self.states.initialize(|parameter, _| State {
            _z: parameter.unary("clone.default", parameter.dtype()),
            exp_avg_sq: (averaged != Averaged::Sgd).then(|| zeros_like(parameter)),
        });
        if averaged == Averaged::RAdam && self.steps < RECTIFIED_STEP {
            return;
        }
        let squares = self.states.active().filter_map(|active| active.state.exp_avg_sq.as_ref());
        let denominators: Vec<Tensor> = squares.map(|square| square.unary("div.Tensor", square.dtype())).collect();
        drop(denominators);
    }

    fn traffic(&self) -> Traffic {
        // lerp_ 3, add_ 3, sub_ 3; of Adam's _foreach_mul_ 2, addcmul_ 3, sqrt_ 2, add_ 2, div_ 3 before.
        Traffic::of_passes(if self.averaged == Averaged::Sgd { 9 } else { 21 })
    }
}
