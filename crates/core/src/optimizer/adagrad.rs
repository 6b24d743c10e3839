//! Adagrad (torch/optim/adagrad.py), foreach: sums of squares of all parameters, made with the optimizer, and two temporaries of the size of
//! all parameters of a dtype; decay makes the second of them earlier.

use crate::op::{foreach_sqrt, group_by_dtype};
use crate::tensor::Tensor;
use crate::trace::Category;

use super::decayed::Decay;
use super::{Optimizer, Traffic};

pub(super) struct Adagrad {
    parameters: Vec<Tensor>,
    sums: Vec<Tensor>,
    decay: Decay,
}

impl Adagrad {
    pub(super) fn new(parameters: Vec<Tensor>, decay: Decay) -> Self {
        let sum_of = |parameter: &Tensor| {
            let context = parameter.context();
            let _module = context.enter_module(parameter.module());
            let _category = context.enter_category(Category::OptimizerState);
            parameter.unary("full_like.default", parameter.dtype())
        };
        let sums = parameters.iter().map(sum_of).collect();
        Self { parameters, sums, decay }
    }
}

impl Optimizer for Adagrad {
    /// Roots and numerators of a dtype stay until the next dtype's are there. Decayed gradients are the numerators.
    fn step(&mut self) {
        let stepped = self.parameters.iter().zip(&self.sums).filter(|(parameter, _)| parameter.grad().is_some());
        let (parameters, sums): (Vec<Tensor>, Vec<Tensor>) =
            stepped.map(|(parameter, sum)| (parameter.clone(), sum.clone())).unzip();
        let (mut roots, mut numerators) = (Vec::new(), Vec::new());
        for group in group_by_dtype(&sums) {
            let decayed = self.decay.copies(group.iter().map(|&at| &parameters[at]));
            roots = foreach_sqrt(group.iter().map(|&at| &sums[at]));
            let product = |&at: &usize| sums[at].unary("_foreach_mul.ScalarList", sums[at].dtype());
            numerators = if decayed.is_empty() { group.iter().map(product).collect() } else { decayed };
        }
        drop((roots, numerators));
    }

    fn traffic(&self) -> Traffic {
        // _multi_tensor_adagrad: addcmul_ 3, add_ 2, addcdiv_ 4.
        Traffic::of_passes(9)
    }
}
