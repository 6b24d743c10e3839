//! GLM-4 of 2024 (transformers/models/glm/modeling_glm.py), and the attention and MLP that GLM-4-0414 shares with it: biases on queries,
//! keys and values, neighbours turned in a part of each head, gate and up in one matrix.

use crate::building::{BuildError, Builder, Module};
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{Activation, AttentionOutput, Linear, RmsNorm, repeat_interleave, rotate_pairs, split_rotary};
use crate::op::cat;
use crate::tensor::Tensor;

use super::attention::{Projections, SelfAttention, attend};
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::layer::{FeedForward, LayerCall};
use super::llama::{DecoderForCausalLm, LlamaDecoderLayer};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["glm"], build };

/// What `GlmConfig` and `Glm4Config` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 151_552,
    intermediate_size: 13696,
    num_hidden_layers: 40,
    num_key_value_heads: Some(2),
    head_dim: Some(128),
    reads_attention_bias: false,
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    positions: 131_072,
    norm_eps: 0.000_000_156_25,
    pad_token_id: Some(151_329),
    ..DecoderDefaults::LLAMA
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let new_layer = |at: &Builder, layer, config: &DecoderConfig| {
        let new_attention = |at: &Builder| GlmAttention::new(at, config, options);
        let new_mlp = |at: &Builder| GlmMlp::new(at, config);
        LlamaDecoderLayer::<_, _, RmsNorm>::with_parts(at, layer, config, new_attention, new_mlp)
    };
    Ok(Box::new(DecoderForCausalLm::with_layers(at, read_config(&model.config)?, options, new_layer)))
}

/// What both read.
pub(crate) fn read_config(fields: &Fields) -> Result<DecoderConfig, FieldError> {
    let mut config = DecoderConfig::read(fields, &DEFAULTS)?.turning_a_part(fields, "partial_rotary_factor", 0.5)?;
    config.qkv_bias = fields.flag("attention_bias", true)?;
    Ok(config)
}

pub(crate) struct GlmMlp {
    module: Module,
    gate_up_proj: Linear,
    down_proj: Linear,
    activation_fn: Module,
    activation: Activation,
}

impl GlmMlp {
    pub(crate) fn new(at: &Builder, config: &DecoderConfig) -> Self {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        Self {
            module: at.module(),
            gate_up_proj: Linear::new(&at.at("gate_up_proj"), hidden, 2 * inner, false),
            down_proj: Linear::new(&at.at("down_proj"), inner, hidden, false),
            activation_fn: at.at("activation_fn").module(),
            activation: config.activation,
        }
    }
}

impl FeedForward for GlmMlp {
    fn forward(&self, hidden_states: &Tensor, _call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let [gate, mut up_states] = self.gate_up_proj.forward(hidden_states).split_last();
        // `up_states` is assigned when the product is there: its old memory lives until then, as Python's does.
        up_states = {
            let activated = {
                let _activation_fn = self.activation_fn.enter();
                self.activation.forward(&gate)
            };
            &up_states * &activated
        };
        self.down_proj.forward(&up_states)
    }
}

/// `apply_rotary_pos_emb`: the first half of a table, each number twice in a row, turns the first part of each head.
fn apply_rotary_pos_emb(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    let doubled = |table: &Tensor| {
        let table = table.unsqueeze(1);
        repeat_interleave(&table.narrow(3, 0..table.size(-1) / 2))
    };
    let (cos, sin) = (doubled(cos), doubled(sin));
    let rotary_dim = cos.size(-1);
    let (q_rot, q_pass) = split_rotary(q, rotary_dim);
    let (k_rot, k_pass) = split_rotary(k, rotary_dim);
    let mut q_embed = rotate_pairs(&q_rot, &cos, &sin);
    let mut k_embed = rotate_pairs(&k_rot, &cos, &sin);
    q_embed = cat(&[&q_embed, &q_pass], 3);
    k_embed = cat(&[&k_embed, &k_pass], 3);
    (q_embed, k_embed)
}

pub(crate) struct GlmAttention {
    module: Module,
    projections: Projections,
    config: DecoderConfig,
    options: RunOptions,
}

impl GlmAttention {
    pub(crate) fn new(at: &Builder, config: &DecoderConfig, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            projections: Projections::new(at, config, "o_proj"),
            config: config.clone(),
            options: options.clone(),
        }
    }
}

impl SelfAttention for GlmAttention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let [mut query_states, mut key_states, mut value_states] = self.projections.heads_first(hidden_states);
        (query_states, key_states) = apply_rotary_pos_emb(&query_states, &key_states, &call.cos, &call.sin);
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let (attn_output, attn_weights) = attend(states, call, self.config.scores(), &self.options);
        (self.projections.merge_heads(attn_output), attn_weights)
    }
}
