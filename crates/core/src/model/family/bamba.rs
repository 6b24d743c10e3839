//! Bamba (transformers/models/bamba/modeling_bamba.py): Llama's layers, in most of which a state space stands in the attention's place,
//! and rotary embeddings on half of each head in the others.

use crate::building::{BuildError, Builder};
use crate::job::{Fields, ModelSpec};
use crate::model::nn::{LayerType, RmsNorm};

use super::attention::SelfAttention;
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::gated_mlp::DecoderMlp;
use super::glm4_moe::apply_rotary_pos_emb;
use super::hybrid::{AttentionForm, HybridAttention, expanded_width, read_mixer};
use super::layer::DecoderLayer;
use super::llama::{DecoderForCausalLm, LlamaDecoderLayer};
use super::mamba2_mixer::Mamba2Mixer;
use super::{Family, Model, RunOptions, falcon_h1};

pub(crate) const FAMILY: Family = Family { model_types: &["bamba"], build };

/// What `BambaConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults { positions: 262_144, ..falcon_h1::DEFAULTS };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let fields = &model.config;
    let decoder = read_decoder(fields)?;
    let mixer = read_mixer(fields, &decoder, expanded_width(fields, &decoder)?)?;
    mixer.check("mamba_n_heads", decoder.num_hidden_layers)?;
    let form = AttentionForm { turn: apply_rotary_pos_emb, key_multiplier: None };
    let new_layer = |at: &Builder, layer: usize, decoder: &DecoderConfig| -> Box<dyn DecoderLayer> {
        let mlp = DecoderMlp::new(&at.at("feed_forward"), decoder);
        let norms = ["input_layernorm", "pre_ff_layernorm"]
            .map(|name| RmsNorm::new(&at.at(name), decoder.hidden_size, decoder.norm_eps));
        let attends = decoder.layer_types.get(layer) == Some(&LayerType::FullAttention);
        let mixer: Box<dyn SelfAttention> = if attends {
            Box::new(HybridAttention::new(&at.at("self_attn"), decoder, options, form))
        } else {
            Box::new(Mamba2Mixer::new(&at.at("mamba"), &mixer))
        };
        Box::new(LlamaDecoderLayer::of_parts(at, layer, decoder, mixer, mlp, norms))
    };
    Ok(Box::new(DecoderForCausalLm::with_layers(at, decoder, options, new_layer)))
}

/// Layers of `attn_layer_indices` have attention.
fn read_decoder(fields: &Fields) -> Result<DecoderConfig, BuildError> {
    let indices = fields.get("attn_layer_indices").and_then(|indices| indices.as_array());
    let attends = |layer: u64| indices.is_some_and(|indices| indices.iter().any(|index| index.as_u64() == Some(layer)));
    let layer_type = |layer| if attends(layer) { LayerType::FullAttention } else { LayerType::LinearAttention };
    let without_types = Fields(
        fields
            .0
            .iter()
            .filter(|(key, _)| *key != "layer_types")
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    );
    let mut decoder = DecoderConfig::read(&without_types, &DEFAULTS)?
        .with_linear_layers(&without_types, "linear_attention", layer_type)?
        .turning_a_part(fields, "partial_rotary_factor", 0.5)?;
    decoder.counts_seen = false;
    decoder.last_norm = ("final_layernorm", false);
    Ok(decoder)
}
