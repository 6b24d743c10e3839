//! StableAdamW (torch-optimi 0.3, stableadamw.py) with its Triton kernels, which work in place: two moments, of 16-bit weights a third for what
//! rounding lost, and a few numbers of each parameter.

use crate::dtype::DType;
use crate::op::full;
use crate::tensor::Tensor;

use super::state::{States, zeros_like};
use super::{Optimizer, Traffic};

pub(super) struct StableAdamW {
    states: States<[Tensor; 5]>,
}

impl StableAdamW {
    pub(super) fn new(parameters: Vec<Tensor>) -> Self {
        Self { states: States::new(parameters) }
    }
}

/// `_init_state`: `exp_avg`, `exp_avg_sq`, `eps_sq`, `kahan_comp`, `mean_square`.
fn state_of(parameter: &Tensor) -> [Tensor; 5] {
    let context = parameter.context();
    [
        zeros_like(parameter),
        zeros_like(parameter),
        full(context, "_to_copy.default", &[], parameter.dtype()),
        if parameter.dtype().is_half() {
            zeros_like(parameter)
        } else {
            full(context, "zeros.default", &[1], DType::Uint8)
        },
        full(context, "zeros.default", &[1], DType::Float32),
    ]
}

impl Optimizer for StableAdamW {
    fn step(&mut self) {
        self.states.initialize(|parameter, _| state_of(parameter));
    }

    fn traffic(&self) -> Traffic {
        // The first kernel reads the gradient and both moments and writes the moments, the second reads them and the parameter, which it
        // writes.
        Traffic::of_passes(9)
    }
}
