//! The MLP of encoders of images that go by CLIP's names: ViT's and CLIP's.

use crate::building::{Builder, Module};
use crate::model::nn::{Activation, Linear};
use crate::tensor::Tensor;

pub(crate) struct ImageMlp {
    module: Module,
    activation_fn: Module,
    fc1: Linear,
    fc2: Linear,
    activation: Activation,
}

impl ImageMlp {
    pub(crate) fn new(at: &Builder, [hidden, inner]: [u64; 2], activation: Activation) -> Self {
        Self {
            module: at.module(),
            activation_fn: at.at("activation_fn").module(),
            fc1: Linear::new(&at.at("fc1"), hidden, inner, true),
            fc2: Linear::new(&at.at("fc2"), inner, hidden, true),
            activation,
        }
    }

    pub(crate) fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.fc1.forward(hidden_states);
        hidden_states = {
            let _activation = self.activation_fn.enter();
            self.activation.forward(&hidden_states)
        };
        self.fc2.forward(&hidden_states)
    }
}
