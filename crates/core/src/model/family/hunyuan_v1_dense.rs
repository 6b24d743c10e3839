//! HunYuan's dense models (transformers/models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py): Llama with norms on turned queries and
//! keys.

use serde_json::Value;

use crate::building::{BuildError, Builder, Module};
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{AttentionOutput, RmsNorm, RopeKind, apply_rotary_pos_emb};
use crate::tensor::Tensor;

use super::attention::{Projections, SelfAttention, attend};
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::gated_mlp::DecoderMlp;
use super::layer::LayerCall;
use super::llama::{DecoderForCausalLm, LlamaDecoderLayer};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["hunyuan_v1_dense"], build };

/// What `HunYuanDenseV1Config` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 290_943,
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    norm_eps: 1e-5,
    pad_token_id: Some(0),
    ..DecoderDefaults::LLAMA
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let mut config = DecoderConfig::read(&model.config, &DEFAULTS)?;
    stretch_base(&mut config, &model.config)?;
    let new_layer = |at: &Builder, layer, config: &DecoderConfig| {
        let new_attention = |at: &Builder| HunYuanAttention::new(at, config, options);
        let new_mlp = |at: &Builder| DecoderMlp::new(at, config);
        LlamaDecoderLayer::<_, _, RmsNorm>::with_parts(at, layer, config, new_attention, new_mlp)
    };
    Ok(Box::new(DecoderForCausalLm::<_, RmsNorm>::with_norms(at, config, options, new_layer)))
}

/// `alpha` of dynamic rotary embeddings, which makes their base larger.
fn stretch_base(config: &mut DecoderConfig, fields: &Fields) -> Result<(), FieldError> {
    let parameters = match fields.object("rope_parameters")? {
        Some(parameters) => Some(parameters),
        None => fields.object("rope_scaling")?,
    };
    let alpha = parameters.as_ref().and_then(|parameters| parameters.get("alpha")).and_then(Value::as_f64);
    if let Some(alpha) = alpha.filter(|alpha| *alpha > 0.0 && config.rope.kind == RopeKind::Dynamic) {
        let dim = config.head_dim as f64;
        config.rope.theta *= alpha.powf(dim / (dim - 2.0).max(1.0));
    }
    Ok(())
}

struct HunYuanAttention {
    module: Module,
    projections: Projections,
    query_layernorm: RmsNorm,
    key_layernorm: RmsNorm,
    config: DecoderConfig,
    options: RunOptions,
}

impl HunYuanAttention {
    fn new(at: &Builder, config: &DecoderConfig, options: &RunOptions) -> Self {
        let norm = |name| RmsNorm::new(&at.at(name), config.head_dim, config.norm_eps);
        Self {
            module: at.module(),
            projections: Projections::new(at, config, "o_proj"),
            query_layernorm: norm("query_layernorm"),
            key_layernorm: norm("key_layernorm"),
            config: config.clone(),
            options: options.clone(),
        }
    }
}

impl SelfAttention for HunYuanAttention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let [mut query_states, mut key_states, mut value_states] = self.projections.heads_first(hidden_states);
        (query_states, key_states) = apply_rotary_pos_emb(&query_states, &key_states, &call.cos, &call.sin);
        query_states = self.query_layernorm.forward(&query_states);
        key_states = self.key_layernorm.forward(&key_states);
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let (attn_output, attn_weights) = attend(states, call, self.config.scores(), &self.options);
        (self.projections.merge_heads(attn_output), attn_weights)
    }
}
