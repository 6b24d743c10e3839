//! The two linear layers with an activation between them with which projectors end (LLaVA's, InternVL's, Mistral 3's).

use crate::building::{Builder, Module};
use crate::model::nn::{Activation, Linear};
use crate::tensor::Tensor;

pub(super) struct LinearPair {
    linear_1: Linear,
    act: Module,
    activation: Activation,
    linear_2: Linear,
}

impl LinearPair {
    /// From `states` features to `width`; `at` is the projector's place.
    pub(super) fn new(at: &Builder, [states, width]: [u64; 2], (bias, activation): (bool, Activation)) -> Self {
        Self {
            linear_1: Linear::new(&at.at("linear_1"), states, width, bias),
            act: at.at("act").module(),
            activation,
            linear_2: Linear::new(&at.at("linear_2"), width, width, bias),
        }
    }

    /// What it is given is Python's variable, which each line assigns anew.
    pub(super) fn forward(&self, mut hidden_states: Tensor) -> Tensor {
        hidden_states = self.linear_1.forward(&hidden_states);
        hidden_states = {
            let _act = self.act.enter();
            self.activation.forward(&hidden_states)
        };
        self.linear_2.forward(&hidden_states)
    }
}
