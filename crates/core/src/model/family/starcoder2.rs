//! StarCoder2 (transformers/models/starcoder2/modeling_starcoder2.py): Llama's attention with biases, layer norms, an MLP without
//! a gate, and dropout on the embeddings and on both branches.

use crate::building::{BuildError, Builder, Module};
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{Activation, AttentionOutput, LayerNorm, LayerType, Linear, apply_rotary_pos_emb};
use crate::tensor::Tensor;

use super::attention::{Projections, SelfAttention, attend};
use super::decoder::{DecoderConfig, DecoderDefaults, SLIDING};
use super::layer::{FeedForward, LayerCall};
use super::llama::{DecoderForCausalLm, LlamaDecoderLayer};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["starcoder2"], build };

/// What `Starcoder2Config` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 49152,
    hidden_size: 3072,
    intermediate_size: 12288,
    num_hidden_layers: 30,
    num_attention_heads: 24,
    num_key_value_heads: Some(2),
    activation: "gelu_pytorch_tanh",
    tie_word_embeddings: true,
    reads_attention_bias: false,
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    positions: 4096,
    norm_key: "norm_epsilon",
    norm_eps: 1e-5,
    ..DecoderDefaults::LLAMA
};

/// `initializer_range` where the config does not say.
const INITIALIZER_RANGE: f64 = 0.018_042;

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let (config, residual_dropout) = read_config(&model.config)?;
    let new_layer = |at: &Builder, layer, config: &DecoderConfig| {
        let branch = Branch { residual_dropout, options: options.clone() };
        let new_attention = |at: &Builder| Starcoder2Attention::new(at, config, branch.clone());
        let new_mlp = |at: &Builder| Starcoder2Mlp::new(at, config, branch.clone());
        LlamaDecoderLayer::<_, _, LayerNorm>::with_parts(at, layer, config, new_attention, new_mlp)
    };
    Ok(Box::new(DecoderForCausalLm::<_, LayerNorm>::with_norms(at, config, options, new_layer)))
}

/// A decoder's, and the dropout on both branches.
fn read_config(fields: &Fields) -> Result<(DecoderConfig, f64), FieldError> {
    let mut config = DecoderConfig::read(fields, &DEFAULTS)?;
    let bias = fields.flag("use_bias", true)?;
    (config.qkv_bias, config.o_bias, config.mlp_bias) = (bias, bias, bias);
    config.embedding_dropout = fields.probability("embedding_dropout", 0.0)?;
    config.initializer_range = fields.number("initializer_range", INITIALIZER_RANGE)?;
    if let Some(window) = fields.optional_size("sliding_window")? {
        config.sliding_window = window;
        config.mask_types = SLIDING;
        config.layer_types = vec![LayerType::SlidingAttention; config.num_hidden_layers as usize].into();
    }
    Ok((config, fields.probability("residual_dropout", 0.0)?))
}

/// What both branches end with.
#[derive(Clone)]
struct Branch {
    residual_dropout: f64,
    options: RunOptions,
}

impl Branch {
    fn dropped(&self, hidden_states: &Tensor) -> Tensor {
        hidden_states.dropout(self.options.active_call(self.residual_dropout), true)
    }
}

struct Starcoder2Mlp {
    module: Module,
    c_fc: Linear,
    c_proj: Linear,
    act: Module,
    activation: Activation,
    branch: Branch,
}

impl Starcoder2Mlp {
    fn new(at: &Builder, config: &DecoderConfig, branch: Branch) -> Self {
        let (hidden, inner, bias) = (config.hidden_size, config.intermediate_size, config.mlp_bias);
        Self {
            module: at.module(),
            c_fc: Linear::new(&at.at("c_fc"), hidden, inner, bias),
            c_proj: Linear::new(&at.at("c_proj"), inner, hidden, bias),
            act: at.at("act").module(),
            activation: config.activation,
            branch,
        }
    }
}

impl FeedForward for Starcoder2Mlp {
    fn forward(&self, x: &Tensor, _call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.c_fc.forward(x);
        hidden_states = {
            let _act = self.act.enter();
            self.activation.forward(&hidden_states)
        };
        hidden_states = self.c_proj.forward(&hidden_states);
        self.branch.dropped(&hidden_states)
    }
}

struct Starcoder2Attention {
    module: Module,
    projections: Projections,
    config: DecoderConfig,
    branch: Branch,
}

impl Starcoder2Attention {
    fn new(at: &Builder, config: &DecoderConfig, branch: Branch) -> Self {
        Self {
            module: at.module(),
            projections: Projections::new(at, config, "o_proj"),
            config: config.clone(),
            branch,
        }
    }
}

impl SelfAttention for Starcoder2Attention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let [mut query_states, mut key_states, mut value_states] = self.projections.heads_first(hidden_states);
        (query_states, key_states) = apply_rotary_pos_emb(&query_states, &key_states, &call.cos, &call.sin);
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let (mut attn_output, attn_weights) = attend(states, call, self.config.scores(), &self.branch.options);
        attn_output = self.projections.merge_heads(attn_output);
        (self.branch.dropped(&attn_output), attn_weights)
    }
}
