//! Adam and AdamW (torch/optim/adam.py): two moments in the parameter's dtype. foreach makes one temporary of the size
//! of all parameters of a dtype at once; fused keeps its step counters on the device and needs none.

use crate::dtype::DType;
use crate::op::{UNTOLD, foreach_sqrt, full, group_by_dtype};
use crate::tensor::Tensor;

use super::decayed::Decay;
use super::state::{States, zeros_like};
use super::{Optimizer, Traffic};

/// How the step is run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Implementation {
    Foreach,
    Fused,
    ForLoop,
}

/// State of one parameter.
struct Moments {
    /// The step counter; on the host unless fused.
    _step: Option<Tensor>,
    _exp_avg: Tensor,
    exp_avg_sq: Tensor,
}

pub(super) struct Adam {
    states: States<Moments>,
    implementation: Implementation,
    decay: Decay,
}

impl Adam {
    pub(super) fn new(parameters: Vec<Tensor>, implementation: Implementation) -> Self {
        Self { states: States::new(parameters), implementation, decay: Decay::Off }
    }

    pub(super) fn coupled(parameters: Vec<Tensor>, decay: Decay) -> Self {
        Self { decay, ..Self::new(parameters, Implementation::Foreach) }
    }

    /// Decayed gradients go before the denominators come (`del device_grads`). The denominators of a dtype stay until the next dtype's are
    /// there.
    fn step_foreach(&self) {
        let (parameters, squares): (Vec<&Tensor>, Vec<&Tensor>) =
            self.states.stepped().map(|(parameter, state)| (parameter, &state.exp_avg_sq)).unzip();
        let mut denominators = Vec::new();
        for group in group_by_dtype(&squares) {
            drop(self.decay.copies(group.iter().map(|&at| parameters[at])));
            denominators = foreach_sqrt(group.iter().map(|&at| squares[at]));
        }
        drop(denominators);
    }

    /// Each denominator stays until the next one is there.
    fn step_for_loop(&self) {
        let mut denominator = None;
        for active in self.states.active() {
            let square = &active.state.exp_avg_sq;
            denominator = Some(square.unary("sqrt.default", square.dtype()).div_scalar(UNTOLD));
        }
        drop(denominator);
    }
}

impl Optimizer for Adam {
    fn step(&mut self) {
        let fused = self.implementation == Implementation::Fused;
        self.states.initialize(|parameter, _| Moments {
            _step: fused.then(|| full(parameter.context(), "zeros.default", &[], DType::Float32)),
            _exp_avg: zeros_like(parameter),
            exp_avg_sq: zeros_like(parameter),
        });
        match self.implementation {
            Implementation::Foreach => self.step_foreach(),
            Implementation::ForLoop => self.step_for_loop(),
            Implementation::Fused => {}
        }
    }

    fn unscales(&self) -> bool {
        self.implementation == Implementation::Fused
    }

    fn traffic(&self) -> Traffic {
        Traffic::of_passes(match self.implementation {
            // _multi_tensor_adam: mul_ (decay) 2, lerp_ 3, mul_ 2, addcmul_ 3, div_ 2, add_ 2, addcdiv_ 4.
            Implementation::Foreach => 18,
            // One kernel: parameter, gradient and two moments read, three of them written.
            Implementation::Fused => 7,
            // _single_tensor_adam: as foreach, the division makes a tensor.
            Implementation::ForLoop => 16,
        })
    }
}
