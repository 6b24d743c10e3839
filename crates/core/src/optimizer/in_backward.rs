//! An optimizer for each parameter, stepped as soon as its gradient is there (`register_post_accumulate_grad_hook`, as PyTorch's tutorial and
//! torchtune's `optimizer_in_bwd` have it): the gradient goes before the next one comes.

use std::cell::RefCell;

use crate::job::JobSpec;
use crate::tensor::Tensor;

use super::{Optimizer, Traffic};

/// What is left to do when backward is over: nothing. Hooks hold their parameters, and go with it.
struct SteppedInBackward {
    parameters: Vec<Tensor>,
}

/// Registers the hooks; the optimizer that the loop then calls.
pub(crate) fn step_in_backward(job: &JobSpec, parameters: &[Tensor]) -> Box<dyn Optimizer> {
    for parameter in parameters {
        let optimizer = RefCell::new(super::build(job, std::slice::from_ref(parameter)));
        let stepped = parameter.clone();
        parameter.register_post_accumulate_grad_hook(move || {
            optimizer.borrow_mut().step();
            stepped.set_grad(None);
        });
    }
    Box::new(SteppedInBackward { parameters: parameters.to_vec() })
}

impl Optimizer for SteppedInBackward {
    fn step(&mut self) {}

    fn traffic(&self) -> Traffic {
        Traffic::COUNTED_ELSEWHERE
    }
}

impl Drop for SteppedInBackward {
    fn drop(&mut self) {
        self.parameters.iter().for_each(|parameter| parameter.register_post_accumulate_grad_hook(|| {}));
    }
}
