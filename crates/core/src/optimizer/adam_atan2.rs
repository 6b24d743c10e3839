//! AdamATan2 as in adam-atan2's fused kernel: two moments and a step counter, made as each parameter is reached; the
//! update works in place.

use crate::dtype::DType;
use crate::op::full;
use crate::tensor::Tensor;

use super::state::{States, zeros_like};
use super::{Optimizer, Traffic};

/// State of one parameter.
struct Moments {
    _step: Tensor,
    _exp_avg: Tensor,
    _exp_avg_sq: Tensor,
}

pub(super) struct AdamAtan2 {
    states: States<Moments>,
}

impl AdamAtan2 {
    pub(super) fn new(parameters: Vec<Tensor>) -> Self {
        Self { states: States::new(parameters) }
    }
}

impl Optimizer for AdamAtan2 {
    fn step(&mut self) {
        self.states.initialize(|parameter, _| Moments {
            _step: full(parameter.context(), "zeros.default", &[], DType::Float32),
            _exp_avg: zeros_like(parameter),
            _exp_avg_sq: zeros_like(parameter),
        });
    }

    fn traffic(&self) -> Traffic {
        // One kernel: parameter, gradient and two moments read, three of them written.
        Traffic::of_passes(7)
    }
}
