//! What the generic decoder reads of a config: sizes under any of the names that they go by, and the type's switches.

use std::rc::Rc;

use serde_json::Value;

use crate::job::{FieldError, Fields};
use crate::model::family::bounds::{bound_weights, check_divides, check_rotary};
use crate::model::nn::{Activation, LayerType};

use super::shape::{MlpKind, Positions, Shape, shape_of_type};

/// Names of a size, the commonest first.
const HIDDEN: &[&str] = &["hidden_size", "n_embd", "n_embed"];
const LAYERS: &[&str] = &["num_hidden_layers", "n_layer", "num_layers"];
const HEADS: &[&str] = &["num_attention_heads", "n_head", "num_heads"];
const INNER: &[&str] = &["intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner"];
const TABLE: &[&str] = &["max_position_embeddings", "n_positions"];

/// An activation of the MLP.
#[derive(Clone, Copy, Debug)]
pub(super) enum MlpActivation {
    Known(Activation),
    /// `relu(x)` squared.
    Relu2,
}

/// The config of a generic decoder.
#[derive(Clone)]
pub(super) struct GenericConfig {
    pub shape: Shape,
    pub vocab_size: u64,
    pub hidden_size: u64,
    pub intermediate_size: u64,
    pub num_hidden_layers: u64,
    pub num_attention_heads: u64,
    pub num_key_value_heads: u64,
    pub head_dim: u64,
    /// How much of each head rotary embeddings turn.
    pub rotary_dim: u64,
    /// Rows of a learned table of positions, or of the mask that each layer keeps.
    pub positions: u64,
    pub activation: MlpActivation,
    pub embedding_dropout: f64,
    pub residual_dropout: f64,
    pub attention_dropout: f64,
    pub tie_word_embeddings: bool,
    pub layer_types: Rc<[LayerType]>,
    pub sliding_window: u64,
}

impl GenericConfig {
    pub(super) fn read(model_type: &str, fields: &Fields) -> Result<Self, FieldError> {
        let Some(shape) = shape_of_type(model_type, fields)? else {
            return Err(FieldError::new("model_type", format!("no generic decoder stands in for `{model_type}`")));
        };
        let (heads_key, heads) = needed_size(fields, HEADS)?;
        let (hidden_key, hidden_size) = needed_size(fields, HIDDEN)?;
        let (layers_key, _) = needed_size(fields, LAYERS)?;
        let num_hidden_layers = fields.layers(layers_key, 1)?;
        let head_dim = match fields.optional_size("head_dim")?.or(default_head_dim(model_type)) {
            Some(head_dim) => head_dim,
            None => {
                check_divides(heads_key, heads, hidden_key, hidden_size)?;
                hidden_size / heads
            }
        };
        let (sliding_window, layer_types) = layer_windows(fields, num_hidden_layers)?;
        let dropout =
            |(key, default): (&str, f64)| if key.is_empty() { Ok(0.0) } else { fields.probability(key, default) };
        let config = Self {
            vocab_size: needed_size(fields, &["vocab_size"])?.1,
            hidden_size,
            intermediate_size: inner_size(fields, &shape, hidden_size)?,
            num_hidden_layers,
            num_attention_heads: heads,
            num_key_value_heads: key_value_heads(fields, &shape, heads)?,
            head_dim,
            rotary_dim: rotary_dim(fields, &shape, head_dim)?,
            positions: optional_size(fields, TABLE)?.map_or(0, |(_, positions)| positions),
            activation: mlp_activation(fields, &shape)?,
            embedding_dropout: dropout(shape.embedding_dropout)?,
            residual_dropout: dropout(shape.residual_dropout)?,
            attention_dropout: dropout(shape.attention_dropout)?,
            tie_word_embeddings: fields.flag("tie_word_embeddings", shape.tied)?,
            layer_types,
            sliding_window,
            shape,
        };
        config.check(heads_key)?;
        Ok(config)
    }

    fn check(&self, heads_key: &'static str) -> Result<(), FieldError> {
        check_divides("num_key_value_heads", self.num_key_value_heads, heads_key, self.num_attention_heads)?;
        if matches!(self.shape.positions, Positions::Learned(_)) && self.positions == 0 {
            return Err(FieldError::new(TABLE[0], "is missing: it is the size of a learned table"));
        }
        let (hidden, layers) = (self.hidden_size, self.num_hidden_layers);
        bound_weights(&[("head_dim", [self.num_attention_heads, self.head_dim], 1)])?;
        bound_weights(&[
            ("vocab_size", [self.vocab_size, hidden], 2),
            (TABLE[0], [self.positions, hidden], 1),
            (TABLE[0], [self.positions, self.positions], layers),
            ("intermediate_size", [self.intermediate_size, hidden], 3 * layers),
            (heads_key, [self.num_attention_heads * self.head_dim, hidden], 4 * layers),
        ])
    }

    /// Width of all queries, and of all keys or all values.
    pub(super) fn widths(&self) -> (u64, u64) {
        (self.num_attention_heads * self.head_dim, self.num_key_value_heads * self.head_dim)
    }

    /// The window of each layer.
    pub(super) fn windows(&self) -> Vec<Option<u64>> {
        let window =
            |layer_type: &LayerType| (*layer_type == LayerType::SlidingAttention).then_some(self.sliding_window);
        self.layer_types.iter().map(window).collect()
    }

    /// The masks that a forward pass makes.
    pub(super) fn mask_types(&self) -> Vec<LayerType> {
        let both = [LayerType::FullAttention, LayerType::SlidingAttention];
        both.into_iter().filter(|layer_type| self.layer_types.contains(layer_type)).collect()
    }
}

/// The first of these names that the config has, with its size.
fn optional_size(fields: &Fields, names: &[&'static str]) -> Result<Option<(&'static str, u64)>, FieldError> {
    match names.iter().find(|name| fields.get(name).is_some()) {
        Some(name) => Ok(fields.optional_size(name)?.map(|size| (*name, size))),
        None => Ok(None),
    }
}

fn needed_size(fields: &Fields, names: &[&'static str]) -> Result<(&'static str, u64), FieldError> {
    optional_size(fields, names)?
        .ok_or_else(|| FieldError::new(names[0], "is missing: the generic decoder fills in no size"))
}

/// Config classes whose head size is not the share of the hidden size.
fn default_head_dim(model_type: &str) -> Option<u64> {
    match model_type {
        "gemma" => Some(256),
        "helium" | "seed_oss" | "ernie4_5" | "qwen3_vl_text" | "ministral3" | "cwm" => Some(128),
        _ => None,
    }
}

fn inner_size(fields: &Fields, shape: &Shape, hidden_size: u64) -> Result<u64, FieldError> {
    match optional_size(fields, INNER)? {
        Some((_, inner)) => Ok(inner),
        None if shape.mlp == MlpKind::Plain => Ok(4 * hidden_size),
        None => Err(FieldError::new(INNER[0], "is missing: the generic decoder fills in no size")),
    }
}

fn key_value_heads(fields: &Fields, shape: &Shape, heads: u64) -> Result<u64, FieldError> {
    if let Some(named) = shape.key_value_heads {
        return Ok(named);
    }
    let reads = !matches!(shape.names.qkv, [_]);
    let named = if reads { fields.optional_size("num_key_value_heads")? } else { None };
    Ok(named.unwrap_or(heads))
}

/// From `rotary_dim`, from a factor in the rotary parameters or beside them, or the type's own.
fn rotary_dim(fields: &Fields, shape: &Shape, head_dim: u64) -> Result<u64, FieldError> {
    let Positions::Rotary(rotary) = shape.positions else { return Ok(2) };
    if let Some(turned) = fields.optional_size("rotary_dim")? {
        check_rotary("rotary_dim", turned)?;
        return Ok(turned.min(head_dim));
    }
    let parameters = fields.object("rope_parameters")?.unwrap_or_default();
    let key = "partial_rotary_factor";
    let given = parameters.get(key).or_else(|| fields.get(key)).or_else(|| fields.get("rotary_pct"));
    let factor = match given.filter(|_| rotary.joins).map(Value::as_f64) {
        None => rotary.factor,
        Some(Some(factor)) if factor > 0.0 && factor <= 1.0 => factor,
        Some(_) => return Err(FieldError::new(key, "must be a number above 0 and at most 1")),
    };
    let turned = (head_dim as f64 * factor) as u64;
    check_rotary(if rotary.factor < 1.0 { key } else { "head_dim" }, turned)?;
    Ok(turned)
}

fn mlp_activation(fields: &Fields, shape: &Shape) -> Result<MlpActivation, FieldError> {
    let (keys, default) = shape.activation;
    let key = keys.iter().find(|key| fields.get(key).is_some()).or(keys.first()).copied().unwrap_or("hidden_act");
    let name = if keys.is_empty() { default } else { fields.text(key, default)? };
    match name {
        "relu2" => Ok(MlpActivation::Relu2),
        // Composites like it, of about as many ops.
        "gelu_fast" | "quick_gelu" => Ok(MlpActivation::Known(Activation::GeluNew)),
        name => Activation::from_name(key, name).map(MlpActivation::Known),
    }
}

/// The window and each layer's type: `layer_types`, or a window on every layer where only that is named.
fn layer_windows(fields: &Fields, layers: u64) -> Result<(u64, Rc<[LayerType]>), FieldError> {
    let window =
        fields.optional_size("sliding_window")?.filter(|_| fields.flag("use_sliding_window", true) != Ok(false));
    let Some(window) = window else {
        return Ok((0, vec![LayerType::FullAttention; layers as usize].into()));
    };
    let types = match fields.texts("layer_types")? {
        Some(names) if names.len() as u64 == layers => names
            .iter()
            .map(|name| match *name {
                "sliding_attention" => LayerType::SlidingAttention,
                _ => LayerType::FullAttention,
            })
            .collect(),
        Some(names) => {
            let problem = format!("lists {} layers, the model has {layers}", names.len());
            return Err(FieldError::new("layer_types", problem));
        }
        None => vec![LayerType::SlidingAttention; layers as usize].into(),
    };
    Ok((window, types))
}
