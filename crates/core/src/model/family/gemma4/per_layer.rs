//! Embeddings of tokens for each layer (`embed_tokens_per_layer`), and the gate by which a layer takes its own in.

use crate::building::{Builder, Module};
use crate::model::nn::{Activation, Linear};
use crate::tensor::Tensor;

use super::super::decoder::DecoderConfig;
use super::super::gemma2::ScaledEmbedding;
use super::GemmaPowNorm;

/// `vocab_size_per_layer_input` and `hidden_size_per_layer_input`
#[derive(Clone, Copy)]
pub(crate) struct PerLayerSizes {
    pub vocab_size: u64,
    pub width: u64,
}

/// What the model makes of tokens for all layers at once: [rows, tokens, layers, width].
pub(crate) struct PerLayerInputs {
    embed_tokens_per_layer: ScaledEmbedding,
    per_layer_model_projection: Linear,
    per_layer_projection_norm: GemmaPowNorm,
    sizes: PerLayerSizes,
    layers: u64,
}

impl PerLayerInputs {
    pub(crate) fn new(at: &Builder, decoder: &DecoderConfig, sizes: PerLayerSizes) -> Self {
        let (layers, pad) = (decoder.num_hidden_layers, decoder.pad_token_id);
        let embedding = [sizes.vocab_size, layers * sizes.width];
        let project = at.at("per_layer_model_projection");
        Self {
            embed_tokens_per_layer: ScaledEmbedding::new(&at.at("embed_tokens_per_layer"), embedding, pad, sizes.width),
            per_layer_model_projection: Linear::new(&project, decoder.hidden_size, layers * sizes.width, false),
            per_layer_projection_norm: GemmaPowNorm::new(
                &at.at("per_layer_projection_norm"),
                sizes.width,
                decoder.norm_eps,
            ),
            sizes,
            layers,
        }
    }

    /// `scales`: Gemma 3n's buffers in place of two numbers, of which it multiplies by the first in place.
    pub(crate) fn forward(&self, input_ids: &Tensor, inputs_embeds: &Tensor, scales: Option<&[Tensor; 2]>) -> Tensor {
        let split = [input_ids.size(0), input_ids.size(1), self.layers, self.sizes.width];
        let per_layer_inputs = self.embed_tokens_per_layer.forward(input_ids).reshape(&split);
        let mut per_layer_projection = {
            let projected = self.per_layer_model_projection.forward(inputs_embeds);
            match scales {
                Some([scale, _]) => projected.mul_in_place(&scale.to(inputs_embeds.dtype())),
                None => projected.mul_scalar((inputs_embeds.size(-1) as f64).powf(-0.5)),
            }
        };
        per_layer_projection = per_layer_projection.reshape(&split);
        per_layer_projection = self.per_layer_projection_norm.forward(&per_layer_projection);
        let sum = &per_layer_projection + &per_layer_inputs;
        match scales {
            Some([_, scale]) => &sum * &scale.to(inputs_embeds.dtype()),
            None => sum.mul_scalar(2.0_f64.powf(-0.5)),
        }
    }
}

/// `per_layer_input_gate` and what follows it.
pub(crate) struct PerLayerGate {
    per_layer_input_gate: Linear,
    act_fn: Module,
    activation: Activation,
    per_layer_projection: Linear,
    post_per_layer_input_norm: GemmaPowNorm,
}

impl PerLayerGate {
    pub(crate) fn new(at: &Builder, decoder: &DecoderConfig, sizes: PerLayerSizes) -> Self {
        let hidden = decoder.hidden_size;
        Self {
            act_fn: at.at("act_fn").module(),
            activation: decoder.activation,
            per_layer_input_gate: Linear::new(&at.at("per_layer_input_gate"), hidden, sizes.width, false),
            per_layer_projection: Linear::new(&at.at("per_layer_projection"), sizes.width, hidden, false),
            post_per_layer_input_norm: GemmaPowNorm::new(&at.at("post_per_layer_input_norm"), hidden, decoder.norm_eps),
        }
    }

    pub(crate) fn forward(&self, mut hidden_states: Tensor, per_layer_input: &Tensor) -> Tensor {
        hidden_states = self.per_layer_input_gate.forward(&hidden_states);
        hidden_states = {
            let _act_fn = self.act_fn.enter();
            self.activation.forward(&hidden_states)
        };
        hidden_states = &hidden_states * per_layer_input;
        hidden_states = self.per_layer_projection.forward(&hidden_states);
        self.post_per_layer_input_norm.forward(&hidden_states)
    }
}
