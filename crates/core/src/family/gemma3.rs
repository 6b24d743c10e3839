//! Gemma 3's text model (transformers/models/gemma3/modeling_gemma3.py): Gemma 2's layers with norms on q and k, rotary
//! tables of its own for each type of layer, and one full layer after every five with a window.

use crate::job::ModelSpec;
use crate::nn::{BuildError, Builder, LayerType};

use super::decoder::{DecoderConfig, DecoderDefaults};
use super::gemma2::{self, GemmaConfig, GemmaForCausalLm};
use super::{Build, Family, Model, RunOptions};

pub(super) const FAMILY: Family = Family { model_types: &["gemma3_text"], build: Build::LanguageModel(build) };

/// `Gemma3TextConfig`
const DEFAULTS: DecoderDefaults = DecoderDefaults { vocab_size: 262_208, qk_norm: true, ..gemma2::DEFAULTS };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let pattern = model.config.size("sliding_window_pattern", 6)?;
    let decoder = DecoderConfig::read(&model.config, &DEFAULTS)?.with_layer_types(&model.config, |layer| {
        if (layer + 1).is_multiple_of(pattern) { LayerType::FullAttention } else { LayerType::SlidingAttention }
    })?;
    let mut config = GemmaConfig::read(&model.config, decoder, [None, None])?;
    // `Gemma3Attention` reads its cap from the config and never hands it on.
    config.caps_scores = false;
    config.rotary_types = [LayerType::FullAttention, LayerType::SlidingAttention]
        .into_iter()
        .filter(|layer_type| config.decoder.layer_types.contains(layer_type))
        .collect();
    Ok(Box::new(GemmaForCausalLm::new(at, &config, options)))
}
