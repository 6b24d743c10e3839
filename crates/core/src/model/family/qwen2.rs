//! Qwen2 and Qwen3 (transformers/models/{qwen2,qwen3}): Llama's decoder with biases on q, k and v (Qwen2) or norms on q
//! and k (Qwen3), and windows on the last layers if the config turns them on. The text models of Qwen2-VL and Qwen2.5-VL turn by positions in
//! time, height and width.

use serde_json::Value;

use crate::building::{BuildError, Builder};
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{LayerType, RotaryTables};

use super::decoder::{DecoderConfig, DecoderDefaults, FULL_AND_SLIDING};
use super::llama::DecoderForCausalLm;
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["qwen2", "qwen3"], build };

/// `Qwen2Config`
const QWEN2: DecoderDefaults = DecoderDefaults {
    vocab_size: 151936,
    intermediate_size: 22016,
    num_key_value_heads: Some(32),
    qkv_bias: true,
    reads_attention_bias: false,
    reads_mlp_bias: false,
    file: ModelingFile::Qwen2,
    positions: 32_768,
    ..DecoderDefaults::LLAMA
};

/// `Qwen3Config`
const QWEN3: DecoderDefaults =
    DecoderDefaults { head_dim: Some(128), qkv_bias: false, reads_attention_bias: true, qk_norm: true, ..QWEN2 };

/// `Qwen2VLTextConfig`, `Qwen2_5_VLTextConfig`
const QWEN2_VL: DecoderDefaults = DecoderDefaults {
    vocab_size: 152064,
    hidden_size: 8192,
    intermediate_size: 29568,
    num_hidden_layers: 80,
    num_attention_heads: 64,
    num_key_value_heads: Some(8),
    norm_eps: 1e-5,
    rope_theta: 1_000_000.0,
    ..QWEN2
};

/// `Qwen3VLTextConfig`
const QWEN3_VL: DecoderDefaults = DecoderDefaults {
    hidden_size: 4096,
    intermediate_size: 22016,
    num_hidden_layers: 32,
    num_attention_heads: 32,
    num_key_value_heads: Some(32),
    rope_theta: 500_000.0,
    positions: 128_000,
    ..QWEN3
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let defaults = if model.model_type == "qwen3" { &QWEN3 } else { &QWEN2 };
    Ok(Box::new(DecoderForCausalLm::new(at, read(&model.config, defaults)?, options)))
}

/// The language model behind the towers of Qwen2-VL and Qwen2.5-VL.
pub(crate) fn build_behind_tower(
    model: &ModelSpec,
    at: &Builder,
    options: &RunOptions,
) -> Result<Box<dyn Model>, BuildError> {
    Ok(Box::new(DecoderForCausalLm::new(at, read_grids(&model.config)?, options)))
}

/// That behind Qwen3-VL's, of which the widths of positions lie between each other.
pub(crate) fn build_behind_deepstack(
    model: &ModelSpec,
    at: &Builder,
    options: &RunOptions,
) -> Result<Box<dyn Model>, BuildError> {
    let mut config = DecoderConfig::read(&model.config, &QWEN3_VL)?;
    config.tables = RotaryTables::OfGrids;
    config.masks_read_positions = false;
    Ok(Box::new(DecoderForCausalLm::new(at, config, options)))
}

/// A decoder whose layers turn by positions in time, height and width.
fn read_grids(fields: &Fields) -> Result<DecoderConfig, FieldError> {
    let mut config = DecoderConfig::read(fields, &QWEN2_VL)?;
    if fields.flag("use_sliding_window", false)? {
        return Err(FieldError::unsimulated("use_sliding_window", "windows of these text models are not simulated"));
    }
    config.tables = RotaryTables::OfSections(sections(fields, config.head_dim / 2)?);
    config.projects_first = true;
    config.hands_positions = false;
    config.masks_read_positions = false;
    Ok(config)
}

/// `mrope_section` of the rotary parameters.
fn sections(fields: &Fields, half_dim: u64) -> Result<[u64; 3], FieldError> {
    let key = "mrope_section";
    let inside = |outer| fields.object(outer).ok().flatten().and_then(|parameters| parameters.get(key).cloned());
    let listed = inside("rope_scaling").or_else(|| inside("rope_parameters"));
    let listed = listed.unwrap_or_else(|| Value::from(vec![16, 24, 24]));
    let widths: Vec<u64> = listed.as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    match widths.as_slice() {
        [time, height, width] if time.saturating_add(*height).saturating_add(*width) == half_dim => {
            Ok([*time, *height, *width])
        }
        _ => Err(FieldError::new(key, format!("must be three numbers that add up to {half_dim}, half a head"))),
    }
}

fn read(fields: &Fields, defaults: &DecoderDefaults) -> Result<DecoderConfig, FieldError> {
    let mut config = DecoderConfig::read(fields, defaults)?;
    let window = if fields.flag("use_sliding_window", false)? { window(fields)? } else { None };
    let first = match fields.get("max_window_layers").and_then(Value::as_u64) {
        Some(0) => 0,
        _ => fields.size("max_window_layers", 28)?,
    };
    config = config.with_layer_types(fields, |layer| {
        if window.is_some() && layer >= first { LayerType::SlidingAttention } else { LayerType::FullAttention }
    })?;
    if config.layer_types.contains(&LayerType::SlidingAttention) {
        let Some(window) = window else {
            return Err(FieldError::new(
                "sliding_window",
                "layer_types has sliding layers, but no window is turned on",
            ));
        };
        config.sliding_window = window;
        config.mask_types = FULL_AND_SLIDING;
    }
    Ok(config)
}

fn window(fields: &Fields) -> Result<Option<u64>, FieldError> {
    if fields.0.get("sliding_window") == Some(&Value::Null) {
        return Ok(None);
    }
    fields.size("sliding_window", 4096).map(Some)
}
