//! Qwen1.5's and Qwen2's mixtures of experts (transformers/models/qwen2_moe/modeling_qwen2_moe.py): Qwen2's decoder, of which some
//! layers or all have experts beside one that is shared.

use std::rc::Rc;

use crate::building::{BuildError, Builder};
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::LayerType;

use super::decoder::{DecoderConfig, DecoderDefaults, FULL_AND_SLIDING};
use super::llama::{DecoderForCausalLm, LlamaDecoderLayer};
use super::qwen3_next::{MoeConfig, SparseDefaults};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["qwen2_moe"], build };

/// What `Qwen2MoeConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 151_936,
    hidden_size: 2048,
    intermediate_size: 5632,
    num_hidden_layers: 24,
    num_attention_heads: 16,
    num_key_value_heads: Some(16),
    reads_attention_bias: false,
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    positions: 32_768,
    ..DecoderDefaults::LLAMA
};

/// The same class's experts.
const SPARSE: SparseDefaults =
    SparseDefaults { num_experts: 60, num_experts_per_tok: 4, inner: 1408, shared: 5632, norm_topk_prob: false };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let decoder = read_decoder(&model.config)?;
    let moe = MoeConfig::read(&model.config, &decoder, at.dtype(), &SPARSE)?;
    let new_layer = |at: &Builder, layer, decoder: &DecoderConfig| {
        LlamaDecoderLayer::new(at, layer, decoder, options, |at| moe.new_mlp(at, layer, decoder))
    };
    let model = DecoderForCausalLm::with_layers(at, decoder.clone(), options, new_layer);
    Ok(Box::new(model.with_router(Rc::clone(&moe.router_loss))))
}

/// Both masks are made whatever the layers are; a window that is not turned on is 0.
fn read_decoder(fields: &Fields) -> Result<DecoderConfig, FieldError> {
    let mut decoder = DecoderConfig::read(fields, &DEFAULTS)?;
    decoder.qkv_bias = fields.flag("qkv_bias", true)?;
    let is_on = fields.flag("use_sliding_window", false)?;
    let windowed = if is_on { fields.size("max_window_layers", 28)? } else { 0 };
    decoder.sliding_window = if is_on { fields.size("sliding_window", 4096)? } else { 0 };
    decoder.mask_types = FULL_AND_SLIDING;
    decoder.with_layer_types(fields, |layer| {
        if layer.is_multiple_of(2) && layer < windowed { LayerType::SlidingAttention } else { LayerType::FullAttention }
    })
}
