//! Gemma 3's text model (transformers/models/gemma3/modeling_gemma3.py): Gemma 2's layers with norms on q and k, rotary
//! tables of its own for each type of layer, and one full layer after every five with a window.

use crate::building::{BuildError, Builder};
use crate::job::{FieldError, Fields, ModelSpec};
use crate::model::nn::{LayerType, Rope};

use super::decoder::{DecoderConfig, DecoderDefaults};
use super::gemma_config::GemmaConfig;
use super::gemma2;
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["gemma3_text"], build };

/// What `Gemma3TextConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults { vocab_size: 262_208, qk_norm: true, ..gemma2::DEFAULTS };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let pattern = model.config.size("sliding_window_pattern", 6)?;
    let decoder = DecoderConfig::read(&model.config, &DEFAULTS)?.with_layer_types(&model.config, |layer| {
        if (layer + 1).is_multiple_of(pattern) { LayerType::FullAttention } else { LayerType::SlidingAttention }
    })?;
    let mut config = GemmaConfig::read(&model.config, decoder, [None, None])?;
    // `Gemma3Attention` reads its cap from the config and never hands it on.
    config.attn_logit_softcapping = None;
    config.rotary = rotary(&model.config, &config.decoder)?;
    if options.tower.is_some() {
        // `Gemma3ForConditionalGeneration` has a head without.
        config.final_logit_softcapping = None;
    }
    Ok(gemma2::new_model(at, &config, options))
}

/// The frequencies of each type of layer that there is (`convert_rope_params_to_dict`).
pub(crate) fn rotary(fields: &Fields, decoder: &DecoderConfig) -> Result<Vec<(LayerType, Rope)>, FieldError> {
    let by_type = fields.object("rope_parameters")?.unwrap_or_default();
    let scaling = fields.object("rope_scaling")?.unwrap_or_default();
    let read = |layer_type| {
        let (name, theta_key, theta) = match layer_type {
            LayerType::FullAttention => ("full_attention", "rope_theta", 1_000_000.0),
            _ => ("sliding_attention", "rope_local_base_freq", 10_000.0),
        };
        let mut parameters = by_type.object(name)?.unwrap_or_default();
        if layer_type == LayerType::FullAttention {
            parameters.0.extend(scaling.0.clone());
        }
        let theta = fields.positive(theta_key, theta)?;
        Ok((layer_type, Rope::of_parameters(&parameters, fields, theta, decoder.positions)?))
    };
    let both = [LayerType::FullAttention, LayerType::SlidingAttention];
    both.into_iter().filter(|layer_type| decoder.layer_types.contains(layer_type)).map(read).collect()
}
