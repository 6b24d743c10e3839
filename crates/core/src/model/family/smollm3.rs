//! SmolLM3 (transformers/models/smollm3/modeling_smollm3.py): Llama's decoder, of which every fourth layer has no rotary
//! embeddings, and with windows on those layers if the config turns them on.

use serde_json::Value;

use crate::building::{BuildError, Builder};
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::LayerType;

use super::decoder::{DecoderConfig, DecoderDefaults, FULL_AND_SLIDING};
use super::llama::DecoderForCausalLm;
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["smollm3"], build };

/// What `SmolLM3Config` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 128_256,
    hidden_size: 2048,
    num_hidden_layers: 36,
    num_attention_heads: 16,
    num_key_value_heads: Some(4),
    tie_word_embeddings: true,
    file: ModelingFile::Later,
    positions: 32_768,
    rope_theta: 2_000_000.0,
    pad_token_id: Some(128_004),
    ..DecoderDefaults::LLAMA
};

/// `no_rope_layer_interval`
const INTERVAL: u64 = 4;

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    Ok(Box::new(DecoderForCausalLm::new(at, read_config(&model.config)?, options)))
}

fn read_config(fields: &Fields) -> Result<DecoderConfig, FieldError> {
    let mut config = DecoderConfig::read(fields, &DEFAULTS)?;
    let turned = turned_layers(fields, config.num_hidden_layers)?;
    let window = if fields.flag("use_sliding_window", false)? { fields.optional_size("sliding_window")? } else { None };
    config = config.with_layer_types(fields, |layer| {
        let is_turned = turned.get(layer as usize).copied().unwrap_or(true);
        if window.is_some() && !is_turned { LayerType::SlidingAttention } else { LayerType::FullAttention }
    })?;
    if config.layer_types.contains(&LayerType::SlidingAttention) {
        let Some(window) = window else {
            return Err(FieldError::new("layer_types", "has sliding layers, but no window is turned on"));
        };
        config.sliding_window = window;
        config.mask_types = FULL_AND_SLIDING;
    }
    config.turned_layers = Some(turned.into());
    Ok(config)
}

/// Whether each layer has rotary embeddings: `no_rope_layers`, in which 0 is a layer without.
fn turned_layers(fields: &Fields, layers: u64) -> Result<Vec<bool>, FieldError> {
    let key = "no_rope_layers";
    let Some(listed) = fields.get(key) else {
        let interval = fields.size("no_rope_layer_interval", INTERVAL)?;
        return Ok((0..layers).map(|layer| (layer + 1) % interval != 0).collect());
    };
    let numbers: Option<Vec<i64>> = listed.as_array().and_then(|all| all.iter().map(Value::as_i64).collect());
    match numbers {
        Some(numbers) if numbers.len() as u64 >= layers => Ok(numbers.into_iter().map(|number| number != 0).collect()),
        Some(numbers) => {
            Err(FieldError::new(key, format!("lists {} layers, num_hidden_layers is {layers}", numbers.len())))
        }
        None => Err(FieldError::new(key, "must be a list of 0 (no rotary embeddings) and 1")),
    }
}
