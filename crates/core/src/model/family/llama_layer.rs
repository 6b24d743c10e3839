//! The layer of Llama's decoder: a norm and a mixer, a norm and an MLP, both added to what came in.

use crate::building::{Builder, Module};
use crate::model::nn::{Norm, RmsNorm};
use crate::tensor::Tensor;

use super::RunOptions;
use super::attention::SelfAttention;
use super::decoder::DecoderConfig;
use super::gated_mlp::DecoderMlp;
use super::layer::{DecoderLayer, FeedForward, LayerCall};
use super::llama::DecoderAttention;

pub(crate) struct LlamaDecoderLayer<M = DecoderMlp, A = DecoderAttention, N = RmsNorm> {
    module: Module,
    layer: usize,
    self_attn: A,
    mlp: M,
    input_layernorm: N,
    post_attention_layernorm: N,
    /// `residual_multiplier`
    multiplier: Option<f64>,
}

impl<M: FeedForward> LlamaDecoderLayer<M> {
    /// With what `new_mlp` makes in the MLP's place.
    pub(crate) fn new(
        at: &Builder,
        layer: usize,
        config: &DecoderConfig,
        options: &RunOptions,
        new_mlp: impl FnOnce(&Builder) -> M,
    ) -> Self {
        Self::with_parts(at, layer, config, |at| DecoderAttention::new(at, config, options), new_mlp)
    }
}

impl<M: FeedForward, A: SelfAttention, N: Norm> LlamaDecoderLayer<M, A, N> {
    /// With what these make in the attention's and in the MLP's place.
    pub(crate) fn with_parts(
        at: &Builder,
        layer: usize,
        config: &DecoderConfig,
        new_attention: impl FnOnce(&Builder) -> A,
        new_mlp: impl FnOnce(&Builder) -> M,
    ) -> Self {
        Self::with_mixer(at, layer, config, ("self_attn", new_attention), new_mlp)
    }

    /// The same with another name in the attention's place.
    pub(crate) fn with_mixer(
        at: &Builder,
        layer: usize,
        config: &DecoderConfig,
        (name, new_mixer): (&str, impl FnOnce(&Builder) -> A),
        new_mlp: impl FnOnce(&Builder) -> M,
    ) -> Self {
        let names = [name, "mlp", "input_layernorm", "post_attention_layernorm"];
        Self::named(at, layer, config, names, (new_mixer, new_mlp))
    }

    /// The same with other names for all that it has.
    pub(crate) fn named(
        at: &Builder,
        layer: usize,
        config: &DecoderConfig,
        [mixer, mlp, first_norm, second_norm]: [&str; 4],
        (new_mixer, new_mlp): (impl FnOnce(&Builder) -> A, impl FnOnce(&Builder) -> M),
    ) -> Self {
        let self_attn = new_mixer(&at.at(mixer));
        let mlp = new_mlp(&at.at(mlp));
        let norms = [first_norm, second_norm].map(|name| N::new(&at.at(name), config.hidden_size, config.norm_eps));
        Self::of_parts(at, layer, config, self_attn, mlp, norms)
    }

    /// Of parts that were registered in the order of their making.
    pub(crate) fn of_parts(
        at: &Builder,
        layer: usize,
        config: &DecoderConfig,
        self_attn: A,
        mlp: M,
        [input_layernorm, post_attention_layernorm]: [N; 2],
    ) -> Self {
        Self {
            module: at.module(),
            layer,
            self_attn,
            mlp,
            input_layernorm,
            post_attention_layernorm,
            multiplier: config.multipliers.map(|multipliers| multipliers.residual),
        }
    }

    /// `residual + hidden_states`, or `residual + hidden_states * residual_multiplier`, whose product goes with the sum.
    fn add(&self, residual: &Tensor, hidden_states: &Tensor) -> Tensor {
        match self.multiplier {
            Some(multiplier) => residual + &hidden_states.mul_scalar(multiplier),
            None => residual + hidden_states,
        }
    }
}

impl<M: FeedForward, A: SelfAttention, N: Norm> DecoderLayer for LlamaDecoderLayer<M, A, N> {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.input_layernorm.forward(residual);
        let (attn_output, _weights) = self.self_attn.forward(&hidden_states, call, self.layer);
        hidden_states = attn_output;
        hidden_states = self.add(residual, &hidden_states);
        let residual = hidden_states.clone();
        hidden_states = self.post_attention_layernorm.forward(&hidden_states);
        let (output, _router_logits) = self.mlp.forward_routed(&hidden_states, call);
        hidden_states = output;
        self.add(&residual, &hidden_states)
    }
}
