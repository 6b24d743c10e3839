//! GrokAdamW (grokadamw 0.1): three averages that lie on the host and come to the device parameter by parameter, each clipped by itself. A
//! parameter's variables stay until the next one's replace them.

use crate::tensor::Tensor;

use super::{Optimizer, Traffic, clip_grad_norm};

/// Python variables of the step's loop.
#[derive(Default)]
struct Variables {
    moments: Option<[Tensor; 2]>,
    grok_ema: Option<Tensor>,
    grok_grad: Option<Tensor>,
}

pub(super) struct GrokAdamW {
    parameters: Vec<Tensor>,
}

impl GrokAdamW {
    pub(super) fn new(parameters: Vec<Tensor>) -> Self {
        Self { parameters }
    }
}

impl Optimizer for GrokAdamW {
    fn step(&mut self) {
        let mut variables = Variables::default();
        for parameter in self.parameters.iter().filter(|parameter| parameter.grad().is_some()) {
            let context = parameter.context();
            let _module = context.enter_module(parameter.module());
            let from_host = || parameter.unary("_to_copy.default", parameter.dtype());
            variables.moments = Some([from_host(), from_host()]);
            let grok_ema = &*variables.grok_ema.insert(from_host());
            drop(clip_grad_norm(std::slice::from_ref(parameter)));
            let longer = grok_ema.unary("mul.Tensor", parameter.dtype());
            variables.grok_grad = Some(parameter.unary("add.Tensor", parameter.dtype()));
            drop(longer);
            drop(parameter.unary("sqrt.default", parameter.dtype()));
        }
    }

    fn traffic(&self) -> Traffic {
        // Three averages come and go 6, grok_ema.mul_ 2 and add_ 3, moments mul_ 4, add_ 3 and addcmul_ 4, add_ 2, decay 2, addcdiv_ 4.
        Traffic::of_passes(30)
    }
}
