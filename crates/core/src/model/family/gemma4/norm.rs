//! `Gemma4RMSNorm` and `Gemma3nRMSNorm`: fp32 to the end, by a power in place of a reciprocal root.

use crate::building::{Builder, Init, Module, Part};
use crate::tensor::Tensor;

/// A norm whose weight is not centred on 1, as Gemma's are otherwise, or that has none.
pub(crate) struct GemmaPowNorm {
    module: Module,
    weight: Option<Tensor>,
    eps: f64,
}

impl GemmaPowNorm {
    pub(crate) fn new(at: &Builder, width: u64, eps: f64) -> Self {
        Self { module: at.module(), weight: Some(at.parameter("weight", &[width], Init::Ones)), eps }
    }

    /// `with_scale=False`
    pub(crate) fn without_scale(at: &Builder, eps: f64) -> Self {
        Self { module: at.module(), weight: None, eps }
    }

    pub(crate) fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let hidden_states = &self.module.hook_input(Part::Itself, hidden_states);
        let mut normed_output = self.norm(&hidden_states.float());
        if let Some(weight) = &self.weight {
            normed_output = &normed_output * &weight.float();
        }
        normed_output.to(hidden_states.dtype())
    }

    /// `hidden_states * torch.pow(mean_squared, -0.5)`
    fn norm(&self, hidden_states: &Tensor) -> Tensor {
        // Inner blocks are Python's temporaries: what they drop here is freed in the middle of the expression.
        let mean_squared = {
            let mean = hidden_states.pow_scalar(2.0).mean_last();
            mean.add_scalar(self.eps)
        };
        let inverse = mean_squared.pow_scalar(-0.5);
        hidden_states * &inverse
    }
}
