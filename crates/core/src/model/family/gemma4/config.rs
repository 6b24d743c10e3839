//! `Gemma4TextConfig` and `Gemma4UnifiedTextConfig`: what they have beyond a decoder's.

use serde_json::{Value, json};

use crate::dtype::DType;
use crate::job::{FieldError, Fields};
use crate::model::nn::{ExpertsConfig, ExpertsForm, ExpertsKind, LayerType, Rope, Scores};

use super::super::bounds::{bound_weights, check_divides, check_rotary};
use super::super::decoder::{DecoderConfig, DecoderDefaults};
use super::super::gemma2;
use super::AttentionShape;
use super::attention::KeyRole;
use super::per_layer::PerLayerSizes;

pub(super) const UNIFIED: &str = "gemma4_unified_text";

/// What `Gemma4TextConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults =
    DecoderDefaults { vocab_size: 262_144, num_hidden_layers: 30, positions: 131_072, ..gemma2::DEFAULTS };

/// Both types of layers, in the order of their rotary tables.
const TYPES: [(LayerType, &str); 2] =
    [(LayerType::FullAttention, "full_attention"), (LayerType::SlidingAttention, "sliding_attention")];

/// What a config has beyond a decoder's, whose head dimension and heads of keys are those of layers with a window.
#[derive(Clone)]
pub(super) struct Gemma4Config {
    pub decoder: DecoderConfig,
    /// Of layers of full attention.
    global_head_dim: u64,
    global_key_value_heads: u64,
    /// Whether layers of full attention take values from keys.
    k_eq_v: bool,
    /// The first layer that shares keys and values.
    pub first_shared: u64,
    double_wide: bool,
    pub per_layer: Option<PerLayerSizes>,
    pub experts: Option<ExpertsConfig>,
    pub final_logit_softcapping: Option<f64>,
    /// The frequencies of each type of layer that there is.
    pub rotary: Vec<(LayerType, Rope)>,
}

impl Gemma4Config {
    pub(super) fn read(model_type: &str, fields: &Fields, dtype: DType) -> Result<Self, FieldError> {
        let is_unified = model_type == UNIFIED;
        refuse_bidirectional(fields)?;
        let pattern = |layer: u64| match (layer + 1).is_multiple_of(6) {
            true => LayerType::FullAttention,
            false => LayerType::SlidingAttention,
        };
        let mut decoder = DecoderConfig::read(fields, &DEFAULTS)?.with_layer_types(fields, pattern)?;
        force_last_full(&mut decoder);
        decoder.sliding_window = fields.size("sliding_window", if is_unified { 1024 } else { 512 })?;
        let k_eq_v = fields.flag("attention_k_eq_v", false)?;
        let [global_head_dim, global_key_value_heads] = global_heads(fields, &decoder, k_eq_v)?;
        let shared = optional_size(fields, "num_kv_shared_layers", 0)?.unwrap_or(0);
        let config = Self {
            global_head_dim,
            global_key_value_heads,
            k_eq_v,
            first_shared: decoder.num_hidden_layers.saturating_sub(shared),
            double_wide: fields.flag("use_double_wide_mlp", false)?,
            per_layer: if is_unified { None } else { per_layer_sizes(fields)? },
            experts: if is_unified { None } else { experts(fields, &decoder, dtype)? },
            final_logit_softcapping: fields.optional_number("final_logit_softcapping")?,
            rotary: rotary(fields, &decoder)?,
            decoder,
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), FieldError> {
        check_rotary("global_head_dim", self.global_head_dim)?;
        let (decoder, heads) = (&self.decoder, self.decoder.num_attention_heads);
        check_divides("num_global_key_value_heads", self.global_key_value_heads, "num_attention_heads", heads)?;
        check_sharing(&decoder.layer_types, self.first_shared)?;
        let (hidden, layers) = (decoder.hidden_size, decoder.num_hidden_layers);
        bound_weights(&[
            ("global_head_dim", [heads * self.global_head_dim, hidden], 4 * layers),
            ("intermediate_size", [decoder.intermediate_size, hidden], 6 * layers),
        ])?;
        if let Some(sizes) = self.per_layer {
            bound_weights(&[("hidden_size_per_layer_input", [sizes.vocab_size, layers * sizes.width], 2)])?;
        }
        Ok(())
    }

    pub(super) fn head_dim(&self, layer_type: LayerType) -> u64 {
        if layer_type == LayerType::FullAttention { self.global_head_dim } else { self.decoder.head_dim }
    }

    pub(super) fn shape(&self, layer: usize) -> AttentionShape {
        let types = &self.decoder.layer_types;
        let is_full = types[layer] == LayerType::FullAttention;
        AttentionShape {
            head_dim: self.head_dim(types[layer]),
            key_value_heads: if is_full { self.global_key_value_heads } else { self.decoder.num_key_value_heads },
            layer_type: types[layer],
            keys: KeyRole::of_layer(layer, types, self.first_shared as usize),
            values_are_keys: self.k_eq_v && is_full,
            keys_first: false,
        }
    }

    /// The sizes of a layer's MLP.
    pub(super) fn mlp(&self, layer: usize) -> DecoderConfig {
        let mut decoder = self.decoder.clone();
        if self.double_wide && layer as u64 >= self.first_shared {
            decoder.intermediate_size *= 2;
        }
        decoder
    }
}

/// Rows of images are the only ones that `vision` turns round.
fn refuse_bidirectional(fields: &Fields) -> Result<(), FieldError> {
    let key = "use_bidirectional_attention";
    match fields.get(key) {
        None | Some(Value::Bool(false)) => Ok(()),
        Some(Value::String(which)) if which == "vision" => Ok(()),
        Some(_) => Err(FieldError::unsimulated(key, "only causal attention is simulated")),
    }
}

/// `__post_init__`: the last layer always has full attention.
fn force_last_full(decoder: &mut DecoderConfig) {
    let mut types = decoder.layer_types.to_vec();
    if let Some(last) = types.last_mut() {
        *last = LayerType::FullAttention;
    }
    decoder.layer_types = types.into();
}

/// Head dimension and heads of keys in layers of full attention: `per_layer_config` where a config was saved with it.
fn global_heads(fields: &Fields, decoder: &DecoderConfig, k_eq_v: bool) -> Result<[u64; 2], FieldError> {
    let key = "per_layer_config";
    let Some(saved) = fields.object(key)? else {
        let heads = fields.optional_size("num_global_key_value_heads")?.filter(|_| k_eq_v);
        return Ok([fields.size("global_head_dim", 512)?, heads.unwrap_or(decoder.num_key_value_heads)]);
    };
    let full: Vec<usize> = (0..decoder.layer_types.len())
        .filter(|layer| decoder.layer_types[*layer] == LayerType::FullAttention)
        .collect();
    let first = saved.0.values().next().cloned().unwrap_or_default();
    // Keys are layers, written with as many digits as the last one has.
    let said = |(key, value): (&String, &Value)| key.parse::<usize>().ok().filter(|_| *value == first);
    let mut layers: Vec<usize> = saved.0.iter().filter_map(said).collect();
    layers.sort_unstable();
    if layers != full || saved.0.len() != full.len() {
        return Err(FieldError::unsimulated(key, "layers that differ otherwise than by their type are not simulated"));
    }
    let first = Fields(first.as_object().cloned().unwrap_or_default());
    Ok([first.size("head_dim", decoder.head_dim)?, first.size("num_key_value_heads", decoder.num_key_value_heads)?])
}

/// Refuses layers that share what no layer before them has.
pub(crate) fn check_sharing(types: &[LayerType], first_shared: u64) -> Result<(), FieldError> {
    let (own, sharing) = types.split_at(first_shared as usize);
    if sharing.iter().all(|layer_type| own.contains(layer_type)) {
        return Ok(());
    }
    Err(FieldError::new("num_kv_shared_layers", "leaves layers without one of their type before them to share with"))
}

/// A positive integer, or `None` where the config says 0 or `null`, which stand for none.
pub(crate) fn optional_size(fields: &Fields, key: &str, default: u64) -> Result<Option<u64>, FieldError> {
    let is_none = fields.0.get(key).map_or(default == 0, |value| value.is_null() || value.as_u64() == Some(0));
    if is_none { Ok(None) } else { fields.size(key, default).map(Some) }
}

fn per_layer_sizes(fields: &Fields) -> Result<Option<PerLayerSizes>, FieldError> {
    let width = optional_size(fields, "hidden_size_per_layer_input", 256)?;
    let vocab_size = fields.size("vocab_size_per_layer_input", 262_144)?;
    Ok(width.map(|width| PerLayerSizes { vocab_size, width }))
}

fn experts(fields: &Fields, decoder: &DecoderConfig, dtype: DType) -> Result<Option<ExpertsConfig>, FieldError> {
    if !fields.flag("enable_moe_block", false)? {
        return Ok(None);
    }
    let needed = |key: &str| {
        let missing = || FieldError::new(key, "is needed where enable_moe_block is set");
        fields.optional_size(key)?.ok_or_else(missing)
    };
    let config = ExpertsConfig {
        hidden_size: decoder.hidden_size,
        intermediate_size: needed("moe_intermediate_size")?,
        num_experts: needed("num_experts")?,
        num_experts_per_tok: needed("top_k_experts")?,
        activation: decoder.activation,
        scores: Scores { softmax_casts: true, normalized: true, cast_back: false },
        form: ExpertsForm::read(fields)?,
        kind: ExpertsKind::Gated,
    };
    let copies = decoder.num_hidden_layers * 3 * config.num_experts;
    bound_weights(&[("num_experts", [config.intermediate_size, config.hidden_size], copies)])?;
    config.check("moe_intermediate_size", dtype)?;
    Ok(Some(config))
}

/// The frequencies of each type of layer that there is; a config that says nothing of them has its class's.
fn rotary(fields: &Fields, decoder: &DecoderConfig) -> Result<Vec<(LayerType, Rope)>, FieldError> {
    let key = "rope_parameters";
    let by_type = match fields.object(key)? {
        Some(by_type) => by_type,
        None => class_rope_parameters(),
    };
    let read = |(layer_type, name): (LayerType, &str)| {
        let missing = || FieldError::new(key, format!("says nothing of {name}"));
        let parameters = by_type.object(name)?.ok_or_else(missing)?;
        let theta = parameters.needed("rope_theta")?;
        Ok((layer_type, Rope::of_parameters(&parameters, fields, theta, decoder.positions)?))
    };
    TYPES.into_iter().filter(|(layer_type, _)| decoder.layer_types.contains(layer_type)).map(read).collect()
}

fn class_rope_parameters() -> Fields {
    let parameters = json!({
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
    });
    Fields(parameters.as_object().cloned().unwrap_or_default())
}
