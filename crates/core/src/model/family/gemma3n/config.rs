//! `Gemma3nTextConfig`: what it has beyond a decoder's.

use serde_json::Value;

use crate::job::{FieldError, Fields};
use crate::model::nn::{LayerType, Rope};

use super::super::bounds::{bound_weights, check_divides};
use super::super::decoder::{DecoderConfig, DecoderDefaults};
use super::super::gemma4::{AttentionShape, KeyRole, PerLayerSizes, check_sharing, optional_size};
use super::super::{gemma2, gemma3};
use super::altup::AltUpConfig;
use super::mlp::MlpShape;

/// What `Gemma3nTextConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 262_400,
    hidden_size: 2048,
    intermediate_size: INTERMEDIATE_SIZE,
    num_hidden_layers: 35,
    num_key_value_heads: Some(2),
    positions: 32_768,
    ..gemma2::DEFAULTS
};
const INTERMEDIATE_SIZE: u64 = 16_384;
/// Layers that are sparse where a config says nothing and has more, and how sparse.
const SPARSE: (u64, f64) = (10, 0.95);

pub(super) struct Gemma3nConfig {
    pub decoder: DecoderConfig,
    pub mlps: Vec<MlpShape>,
    /// The first layer that shares keys and values.
    pub first_shared: u64,
    pub per_layer: PerLayerSizes,
    pub altup: AltUpConfig,
    pub laurel_rank: u64,
    pub final_logit_softcapping: Option<f64>,
    /// The frequencies of each type of layer that there is.
    pub rotary: Vec<(LayerType, Rope)>,
}

impl Gemma3nConfig {
    pub(super) fn read(fields: &Fields) -> Result<Self, FieldError> {
        let pattern = |layer: u64| match (layer + 1).is_multiple_of(5) {
            true => LayerType::FullAttention,
            false => LayerType::SlidingAttention,
        };
        let mut decoder = DecoderConfig::read(&with_one_size(fields), &DEFAULTS)?.with_layer_types(fields, pattern)?;
        check_divides("num_attention_heads", decoder.num_attention_heads, "hidden_size", decoder.hidden_size)?;
        decoder.sliding_window = fields.size("sliding_window", 512)?;
        let layers = decoder.num_hidden_layers;
        let shared = optional_size(fields, "num_kv_shared_layers", 15)?.unwrap_or(0);
        // As many shared layers as there are stand for none, more are counted from the end.
        let first_shared = if shared < layers { layers - shared } else { layers };
        check_sharing(&decoder.layer_types, first_shared)?;
        let cap = if fields.0.contains_key("final_logit_softcapping") { None } else { Some(30.0) };
        let config = Self {
            mlps: mlps(fields, layers)?,
            first_shared,
            per_layer: PerLayerSizes {
                vocab_size: fields.size("vocab_size_per_layer_input", 262_144)?,
                width: fields.size("hidden_size_per_layer_input", 256)?,
            },
            altup: altup(fields)?,
            laurel_rank: fields.size("laurel_rank", 64)?,
            final_logit_softcapping: fields.optional_number("final_logit_softcapping")?.or(cap),
            rotary: gemma3::rotary(fields, &decoder)?,
            decoder,
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), FieldError> {
        let (hidden, layers) = (self.decoder.hidden_size, self.decoder.num_hidden_layers);
        let sizes = self.per_layer;
        let widest = self.mlps.iter().map(|mlp| mlp.intermediate_size).max().unwrap_or(0);
        bound_weights(&[
            ("intermediate_size", [widest, hidden], 3 * layers),
            ("hidden_size_per_layer_input", [sizes.vocab_size, layers * sizes.width], 2),
            ("laurel_rank", [self.laurel_rank, hidden], 2 * layers),
            ("altup_num_inputs", [hidden, hidden], 2 * self.altup.num_inputs),
        ])
    }

    pub(super) fn shape(&self, layer: usize) -> AttentionShape {
        let types = &self.decoder.layer_types;
        AttentionShape {
            head_dim: self.decoder.head_dim,
            key_value_heads: self.decoder.num_key_value_heads,
            layer_type: types[layer],
            keys: KeyRole::of_layer(layer, types, self.first_shared as usize),
            values_are_keys: false,
            keys_first: true,
        }
    }
}

/// The config with one width where it lists that of each layer's MLP, which are read by themselves.
fn with_one_size(fields: &Fields) -> Fields {
    let mut fields = fields.clone();
    if fields.get("intermediate_size").is_some_and(Value::is_array) {
        fields.0.remove("intermediate_size");
    }
    fields
}

fn mlps(fields: &Fields, layers: u64) -> Result<Vec<MlpShape>, FieldError> {
    let sizes = match listed(fields, "intermediate_size", layers, Value::as_u64)? {
        Some(sizes) if sizes.contains(&0) => return Err(FieldError::new("intermediate_size", "must not list 0")),
        Some(sizes) => sizes,
        None => vec![fields.size("intermediate_size", INTERMEDIATE_SIZE)?; layers as usize],
    };
    let (count, sparsity) = SPARSE;
    let pattern = |layer: u64| if layers > count && layer < count { sparsity } else { 0.0 };
    let pattern = match listed(fields, "activation_sparsity_pattern", layers, Value::as_f64)? {
        Some(pattern) => pattern,
        None => (0..layers).map(pattern).collect(),
    };
    let shape = |(intermediate_size, sparsity)| MlpShape { intermediate_size, sparsity };
    Ok(sizes.into_iter().zip(pattern).map(shape).collect())
}

/// A list of one number of each layer, `None` where the value is none.
fn listed<T>(
    fields: &Fields,
    key: &str,
    layers: u64,
    read: fn(&Value) -> Option<T>,
) -> Result<Option<Vec<T>>, FieldError> {
    let Some(items) = fields.get(key).and_then(Value::as_array) else { return Ok(None) };
    if items.len() as u64 != layers {
        let problem = format!("lists {} layers, num_hidden_layers is {layers}", items.len());
        return Err(FieldError::new(key, problem));
    }
    let numbers: Option<Vec<T>> = items.iter().map(read).collect();
    numbers.map(Some).ok_or_else(|| FieldError::new(key, "must list a number of each layer"))
}

fn altup(fields: &Fields) -> Result<AltUpConfig, FieldError> {
    let num_inputs = fields.bounded("altup_num_inputs", 4, 64)?;
    if num_inputs < 2 {
        return Err(FieldError::unsimulated("altup_num_inputs", "one stream is not simulated"));
    }
    let active_idx = optional_size(fields, "altup_active_idx", 0)?.unwrap_or(0);
    if active_idx >= num_inputs {
        return Err(FieldError::new("altup_active_idx", format!("is {active_idx}, of {num_inputs} streams")));
    }
    let clips_by_default = !fields.0.contains_key("altup_coef_clip");
    Ok(AltUpConfig {
        active_idx,
        coef_clip: fields.optional_number("altup_coef_clip")?.or(clips_by_default.then_some(120.0)),
        correct_scale: fields.flag("altup_correct_scale", true)?,
        num_inputs,
    })
}
