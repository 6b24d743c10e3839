//! What a config of ModernBERT says.

use std::rc::Rc;

use crate::building::{Builder, Module};
use crate::job::{FieldError, Fields};
use crate::model::nn::{Activation, LayerNorm, LayerType, Rope};
use crate::tensor::Tensor;

use super::super::RunOptions;
use super::super::bounds::{bound_weights, check_divides, check_rotary};
use super::super::decoder::{initializer_range, layer_types, padding_row};

/// What `ModernBertConfig` has (transformers 5.17), under its own names.
pub(super) struct Config {
    pub vocab_size: u64,
    pub hidden_size: u64,
    pub intermediate_size: u64,
    pub num_attention_heads: u64,
    pub activation: Activation,
    pub initializer_range: f64,
    pub norm_eps: f64,
    pub norm_bias: bool,
    pub pad_token_id: Option<u64>,
    pub attention_bias: bool,
    pub attention_dropout: f64,
    pub layer_types: Rc<[LayerType]>,
    /// The frequencies of each type of layer that there is.
    pub rotary: Vec<(LayerType, Rope)>,
    /// Half of the window.
    pub sliding_window: u64,
    pub embedding_dropout: f64,
    pub mlp_bias: bool,
    pub mlp_dropout: f64,
    pub decoder_bias: bool,
    /// Whether a row's class is of the mean of its tokens, not of the first.
    pub pools_mean: bool,
    pub classifier_dropout: f64,
    pub classifier_bias: bool,
    pub classifier_activation: Activation,
    pub tie_word_embeddings: bool,
    pub num_labels: u64,
    pub options: RunOptions,
}

impl Config {
    pub(super) fn read(fields: &Fields, options: &RunOptions) -> Result<Self, FieldError> {
        if fields.flag("sparse_prediction", false)? {
            let problem = "logits of the masked tokens alone are not simulated: how many there are is data";
            return Err(FieldError::unsimulated("sparse_prediction", problem));
        }
        let vocab_size = fields.size("vocab_size", 50368)?;
        let activation = |key| Activation::from_name(key, fields.text(key, "gelu")?);
        let layer_types = types_of_layers(fields, fields.layers("num_hidden_layers", 22)?)?;
        let config = Self {
            vocab_size,
            hidden_size: fields.size("hidden_size", 768)?,
            intermediate_size: fields.size("intermediate_size", 1152)?,
            num_attention_heads: fields.size("num_attention_heads", 12)?,
            activation: activation("hidden_activation")?,
            initializer_range: initializer_range(fields)?,
            norm_eps: fields.number("norm_eps", 1e-5)?,
            norm_bias: fields.flag("norm_bias", false)?,
            pad_token_id: padding_row(fields, Some(50283), vocab_size),
            attention_bias: fields.flag("attention_bias", false)?,
            attention_dropout: fields.probability("attention_dropout", 0.0)?,
            rotary: rotary(fields, &layer_types)?,
            layer_types,
            sliding_window: fields.size("local_attention", 128)? / 2,
            embedding_dropout: fields.probability("embedding_dropout", 0.0)?,
            mlp_bias: fields.flag("mlp_bias", false)?,
            mlp_dropout: fields.probability("mlp_dropout", 0.0)?,
            decoder_bias: fields.flag("decoder_bias", true)?,
            pools_mean: pools_mean(fields)?,
            classifier_dropout: fields.probability("classifier_dropout", 0.0)?,
            classifier_bias: fields.flag("classifier_bias", false)?,
            classifier_activation: activation("classifier_activation")?,
            tie_word_embeddings: fields.flag("tie_word_embeddings", true)?,
            num_labels: fields.num_labels()?,
            options: options.clone(),
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), FieldError> {
        check_divides("num_attention_heads", self.num_attention_heads, "hidden_size", self.hidden_size)?;
        check_rotary("num_attention_heads", self.head_dim())?;
        let (hidden, layers) = (self.hidden_size, self.layer_types.len() as u64);
        bound_weights(&[
            ("vocab_size", [self.vocab_size, hidden], 2),
            ("intermediate_size", [self.intermediate_size, hidden], 3 * layers),
            ("hidden_size", [hidden, hidden], 4 * layers),
        ])
    }

    pub(super) const fn head_dim(&self) -> u64 {
        self.hidden_size / self.num_attention_heads
    }

    pub(super) fn norm(&self, at: &Builder) -> LayerNorm {
        LayerNorm::with_bias(at, self.hidden_size, self.norm_eps, self.norm_bias)
    }

    pub(super) fn dropped(&self, at: &Module, states: &Tensor, probability: f64) -> Tensor {
        let _dropout = at.enter();
        states.dropout(probability, self.options.drops_out())
    }
}

/// `layer_types`, which older configs say by `global_attn_every_n_layers`.
fn types_of_layers(fields: &Fields, layers: u64) -> Result<Rc<[LayerType]>, FieldError> {
    if let Some(names) = fields.texts("layer_types")? {
        return layer_types(&names, layers, LayerType::SlidingAttention);
    }
    let every = fields.size("global_attn_every_n_layers", 3)?;
    let of_layer = |layer: u64| match layer.is_multiple_of(every) {
        true => LayerType::FullAttention,
        false => LayerType::SlidingAttention,
    };
    Ok((0..layers).map(of_layer).collect())
}

/// `convert_rope_params_to_dict`, in the order in which the frequencies are registered.
fn rotary(fields: &Fields, layer_types: &[LayerType]) -> Result<Vec<(LayerType, Rope)>, FieldError> {
    let by_type = fields.object("rope_parameters")?.unwrap_or_default();
    let scaling = fields.object("rope_scaling")?.unwrap_or_default();
    let positions = fields.size("max_position_embeddings", 8192)?;
    let read = |(layer_type, name, theta_key, theta)| {
        let mut parameters = by_type.object(name)?.unwrap_or_default();
        parameters.0.extend(scaling.0.clone());
        let theta = fields.positive(theta_key, theta)?;
        Ok((layer_type, Rope::of_parameters(&parameters, fields, theta, positions)?))
    };
    let types = [
        (LayerType::FullAttention, "full_attention", "global_rope_theta", 160_000.0),
        (LayerType::SlidingAttention, "sliding_attention", "local_rope_theta", 10_000.0),
    ];
    types.into_iter().filter(|(layer_type, ..)| layer_types.contains(layer_type)).map(read).collect()
}

fn pools_mean(fields: &Fields) -> Result<bool, FieldError> {
    match fields.text("classifier_pooling", "cls")? {
        "cls" => Ok(false),
        "mean" => Ok(true),
        other => Err(FieldError::new("classifier_pooling", format!("`{other}` is not cls or mean"))),
    }
}
