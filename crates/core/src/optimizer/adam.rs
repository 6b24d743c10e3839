//! Adam and AdamW (torch/optim/adam.py): two moments in the parameter's dtype. foreach makes one temporary of the size
//! of all parameters at once; fused keeps its step counters on the device.

use crate::tensor::Tensor;
use crate::trace::Category;

use super::Optimizer;

/// How the step is run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Implementation {
    Foreach,
    Fused,
    ForLoop,
}

/// State of one parameter.
struct Moments {
    _step: Option<Tensor>,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
}

pub(super) struct Adam {
    parameters: Vec<Tensor>,
    state: Vec<Moments>,
    implementation: Implementation,
}

impl Adam {
    pub(super) fn new(parameters: Vec<Tensor>, implementation: Implementation) -> Self {
        Self { parameters, state: Vec::new(), implementation }
    }

    fn initialize(&mut self) {
        let Some(first) = self.parameters.first() else { return };
        let _category = first.context().enter_category(Category::OptimizerState);
        for parameter in &self.parameters {
            let zeros = || parameter.unary("zeros_like.default", parameter.dtype());
            let step = (self.implementation == Implementation::Fused)
                .then(|| crate::op::full(parameter.context(), "zeros.default", &[], crate::dtype::DType::Float32));
            self.state.push(Moments { _step: step, exp_avg: zeros(), exp_avg_sq: zeros() });
        }
    }
}

impl Optimizer for Adam {
    fn step(&mut self) {
        if self.state.is_empty() {
            self.initialize();
        }
        match self.implementation {
            Implementation::Foreach => {
                let _denominators: Vec<Tensor> = self
                    .state
                    .iter()
                    .map(|moments| moments.exp_avg_sq.unary("_foreach_sqrt.default", moments.exp_avg_sq.dtype()))
                    .collect();
            }
            Implementation::ForLoop => {
                for moments in &self.state {
                    let _denominator = moments.exp_avg_sq.unary("sqrt.default", moments.exp_avg.dtype());
                }
            }
            Implementation::Fused => {}
        }
    }
}
