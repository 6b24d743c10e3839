//! `Gemma3nTextMLP`, whose first layers leave out what is small, and `Gemma3nTextLaurelBlock`.

use crate::building::{Builder, Module};
use crate::dtype::DType;
use crate::model::nn::{Activation, Linear};
use crate::op::number_from_host;
use crate::tensor::Tensor;

use super::super::decoder::DecoderConfig;
use super::super::gemma4::GemmaPowNorm;

/// What differs from layer to layer.
#[derive(Clone, Copy)]
pub(super) struct MlpShape {
    pub intermediate_size: u64,
    /// The part of activations that is left out; none where it is 0.
    pub sparsity: f64,
}

pub(super) struct SparseMlp {
    module: Module,
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
    act_fn: Module,
    activation: Activation,
    sparsity: f64,
}

impl SparseMlp {
    pub(super) fn new(at: &Builder, decoder: &DecoderConfig, shape: MlpShape) -> Self {
        let (hidden, inner) = (decoder.hidden_size, shape.intermediate_size);
        Self {
            module: at.module(),
            gate_proj: Linear::new(&at.at("gate_proj"), hidden, inner, false),
            up_proj: Linear::new(&at.at("up_proj"), hidden, inner, false),
            down_proj: Linear::new(&at.at("down_proj"), inner, hidden, false),
            act_fn: at.at("act_fn").module(),
            activation: decoder.activation,
            sparsity: shape.sparsity,
        }
    }

    pub(super) fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut gate_proj = self.gate_proj.forward(hidden_states);
        if self.sparsity > 0.0 {
            gate_proj = self.gaussian_topk(&gate_proj);
        }
        let activations = {
            let _act_fn = self.act_fn.enter();
            self.activation.forward(&gate_proj)
        };
        let up_proj = self.up_proj.forward(hidden_states);
        let product = &activations * &up_proj;
        self.down_proj.forward(&product)
    }

    /// What lies above a quantile of the normal distribution that a token's activations are taken to be of.
    fn gaussian_topk(&self, inputs: &Tensor) -> Tensor {
        let target = number_from_host(inputs.context(), "_to_copy.default", self.sparsity, DType::Float32);
        let std_multiplier = target.normal_quantile().to(inputs.dtype());
        let inputs_mean = inputs.mean_last();
        let inputs_std = inputs.std_last();
        let cutoff_x = {
            let spread = &inputs_std * &std_multiplier;
            &inputs_mean + &spread
        };
        let above = inputs - &cutoff_x;
        above.relu()
    }
}

pub(super) struct LaurelBlock {
    module: Module,
    linear_left: Linear,
    linear_right: Linear,
    post_laurel_norm: GemmaPowNorm,
}

impl LaurelBlock {
    pub(super) fn new(at: &Builder, decoder: &DecoderConfig, rank: u64) -> Self {
        let hidden = decoder.hidden_size;
        Self {
            module: at.module(),
            linear_left: Linear::new(&at.at("linear_left"), hidden, rank, false),
            linear_right: Linear::new(&at.at("linear_right"), rank, hidden, false),
            post_laurel_norm: GemmaPowNorm::new(&at.at("post_laurel_norm"), hidden, decoder.norm_eps),
        }
    }

    pub(super) fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut laurel_hidden_states = self.linear_left.forward(hidden_states);
        laurel_hidden_states = self.linear_right.forward(&laurel_hidden_states);
        hidden_states + &self.post_laurel_norm.forward(&laurel_hidden_states)
    }
}
