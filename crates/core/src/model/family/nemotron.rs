//! Nemotron (transformers/models/nemotron/modeling_nemotron.py): Llama with layer norms whose weights are one less than what they
//! multiply by, rotary embeddings on a part of each head, and an MLP of squared ReLUs without a gate.

use crate::building::{BuildError, Builder, Init, Module, Part};
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{Activation, AttentionOutput, Linear, Norm, apply_rotary_pos_emb, split_rotary};
use crate::op::cat;
use crate::tensor::Tensor;

use super::attention::{Projections, SelfAttention, attend};
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::layer::{FeedForward, LayerCall};
use super::llama::{DecoderForCausalLm, LlamaDecoderLayer};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["nemotron"], build };

/// What `NemotronConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 256_000,
    hidden_size: 6144,
    intermediate_size: 24_576,
    num_attention_heads: 48,
    activation: "relu2",
    file: ModelingFile::Later,
    positions: 4096,
    norm_key: "norm_eps",
    norm_eps: 1e-5,
    ..DecoderDefaults::LLAMA
};

/// `initializer_range` where the config does not say.
const INITIALIZER_RANGE: f64 = 0.0134;

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = read_config(&model.config)?;
    let new_layer = |at: &Builder, layer, config: &DecoderConfig| {
        let new_attention = |at: &Builder| NemotronAttention::new(at, config, options);
        let new_mlp = |at: &Builder| NemotronMlp::new(at, config);
        LlamaDecoderLayer::<_, _, LayerNorm1P>::with_parts(at, layer, config, new_attention, new_mlp)
    };
    Ok(Box::new(DecoderForCausalLm::<_, LayerNorm1P>::with_norms(at, config, options, new_layer)))
}

fn read_config(fields: &Fields) -> Result<DecoderConfig, FieldError> {
    let mut config = DecoderConfig::read(fields, &DEFAULTS)?.turning_a_part(fields, "partial_rotary_factor", 0.5)?;
    config.initializer_range = fields.number("initializer_range", INITIALIZER_RANGE)?;
    Ok(config)
}

/// `NemotronLayerNorm1P`
struct LayerNorm1P {
    module: Module,
    weight: Tensor,
    bias: Tensor,
    eps: f64,
}

impl Norm for LayerNorm1P {
    fn new(at: &Builder, width: u64, eps: f64) -> Self {
        Self {
            module: at.module(),
            weight: at.parameter("weight", &[width], Init::Ones),
            bias: at.parameter("bias", &[width], Init::Zeros),
            eps,
        }
    }

    fn forward(&self, input: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let input = self.module.hook_input(Part::Itself, input);
        let weight = self.weight.add_scalar(1.0);
        let Some(dtype) = input.context().autocast_dtype() else {
            return input.layer_norm(&weight, &self.bias, self.eps);
        };
        // `_cast_if_autocast_enabled`, whose arguments are gone when the norm runs.
        let (cast_input, cast_weight, cast_bias) = (input.to(dtype), weight.to(dtype), self.bias.to(dtype));
        drop(weight);
        let _own_dtype = input.context().disable_autocast();
        cast_input.layer_norm(&cast_weight, &cast_bias, self.eps)
    }
}

pub(crate) struct NemotronMlp {
    module: Module,
    up_proj: Linear,
    down_proj: Linear,
    act_fn: Module,
    activation: Activation,
}

impl NemotronMlp {
    pub(crate) fn new(at: &Builder, config: &DecoderConfig) -> Self {
        let (hidden, inner, bias) = (config.hidden_size, config.intermediate_size, config.mlp_bias);
        Self {
            module: at.module(),
            up_proj: Linear::new(&at.at("up_proj"), hidden, inner, bias),
            down_proj: Linear::new(&at.at("down_proj"), inner, hidden, bias),
            act_fn: at.at("act_fn").module(),
            activation: config.activation,
        }
    }
}

impl FeedForward for NemotronMlp {
    fn forward(&self, x: &Tensor, _call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let activated = {
            let up = self.up_proj.forward(x);
            let _act_fn = self.act_fn.enter();
            self.activation.forward(&up)
        };
        self.down_proj.forward(&activated)
    }
}

struct NemotronAttention {
    module: Module,
    projections: Projections,
    config: DecoderConfig,
    options: RunOptions,
}

impl NemotronAttention {
    fn new(at: &Builder, config: &DecoderConfig, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            projections: Projections::new(at, config, "o_proj"),
            config: config.clone(),
            options: options.clone(),
        }
    }

    /// `apply_rotary_pos_emb`, which turns a part of each head.
    fn turn(&self, query: &Tensor, key: &Tensor, call: &LayerCall) -> (Tensor, Tensor) {
        let (query_part, query_pass) = split_rotary(query, self.config.rotary_dim);
        let (key_part, key_pass) = split_rotary(key, self.config.rotary_dim);
        let (query_embed, key_embed) = apply_rotary_pos_emb(&query_part, &key_part, &call.cos, &call.sin);
        (cat(&[&query_embed, &query_pass], 3), cat(&[&key_embed, &key_pass], 3))
    }
}

impl SelfAttention for NemotronAttention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let [mut query_states, mut key_states, mut value_states] = self.projections.heads_first(hidden_states);
        (query_states, key_states) = self.turn(&query_states, &key_states, call);
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let (attn_output, attn_weights) = attend(states, call, self.config.scores(), &self.options);
        (self.projections.merge_heads(attn_output), attn_weights)
    }
}
