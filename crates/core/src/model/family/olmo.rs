//! OLMo (transformers/models/olmo/modeling_olmo.py): Llama's decoder with norms that have no weights, rotary tables in fp32,
//! and queries, keys and values that some configs clip.

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{AttentionOutput, Norm, rotate};
use crate::tensor::Tensor;

use super::attention::{Projections, SelfAttention, attend};
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::gated_mlp::DecoderMlp;
use super::layer::LayerCall;
use super::llama::{DecoderForCausalLm, LlamaDecoderLayer};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["olmo"], build };

/// `OlmoConfig`
pub(crate) const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 50304,
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    pad_token_id: Some(1),
    ..DecoderDefaults::LLAMA
};

/// What `OlmoLayerNorm` adds to a variance, whatever the config says.
const EPS: f64 = 1e-5;

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let (config, clip_qkv) = read_config(&model.config)?;
    let new_layer = |at: &Builder, layer, config: &DecoderConfig| {
        let new_attention = |at: &Builder| OlmoAttention::new(at, config, clip_qkv, options);
        let new_mlp = |at: &Builder| DecoderMlp::new(at, config);
        LlamaDecoderLayer::<_, _, OlmoLayerNorm>::with_parts(at, layer, config, new_attention, new_mlp)
    };
    Ok(Box::new(DecoderForCausalLm::<_, OlmoLayerNorm>::with_norms(at, config, options, new_layer)))
}

/// A decoder's, and `clip_qkv`.
fn read_config(fields: &Fields) -> Result<(DecoderConfig, Option<f64>), FieldError> {
    let config = DecoderConfig { float_tables: true, ..DecoderConfig::read(fields, &DEFAULTS)? };
    Ok((config, fields.optional_number("clip_qkv")?))
}

/// `OlmoLayerNorm`: in fp32, without weight and bias.
struct OlmoLayerNorm {
    module: Module,
}

impl Norm for OlmoLayerNorm {
    fn new(at: &Builder, _width: u64, _eps: f64) -> Self {
        Self { module: at.module() }
    }

    fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let normed = {
            let input = hidden_states.to(DType::Float32);
            input.layer_norm_unweighted(EPS)
        };
        normed.to(hidden_states.dtype())
    }
}

/// `apply_rotary_pos_emb` by tables in fp32: queries and keys are cast back when both are turned.
pub(crate) fn apply_rotary_pos_emb(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    let (cos, sin) = (cos.unsqueeze(1), sin.unsqueeze(1));
    let q_embed = rotate(q, &cos, &sin);
    let k_embed = rotate(k, &cos, &sin);
    (q_embed.to(q.dtype()), k_embed.to(k.dtype()))
}

struct OlmoAttention {
    module: Module,
    projections: Projections,
    clip_qkv: Option<f64>,
    config: DecoderConfig,
    options: RunOptions,
}

impl OlmoAttention {
    fn new(at: &Builder, config: &DecoderConfig, clip_qkv: Option<f64>, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            projections: Projections::new(at, config, "o_proj"),
            clip_qkv,
            config: config.clone(),
            options: options.clone(),
        }
    }
}

impl SelfAttention for OlmoAttention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let mut states = self.projections.project(hidden_states);
        if let Some(limit) = self.clip_qkv {
            states = states.map(|states| states.clamp_in_place(limit));
        }
        let [mut query_states, mut key_states, mut value_states] =
            states.map(|states| self.projections.split_heads(&states).transpose(1, 2));
        (query_states, key_states) = apply_rotary_pos_emb(&query_states, &key_states, &call.cos, &call.sin);
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let (attn_output, attn_weights) = attend(states, call, self.config.scores(), &self.options);
        (self.projections.merge_heads(attn_output), attn_weights)
    }
}
