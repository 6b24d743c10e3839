//! What a config of BERT's fields says.

use crate::job::{FieldError, Fields};
use crate::model::nn::Activation;

use super::super::bounds::{bound_weights, check_divides};
use super::super::decoder::{initializer_range, padding_row};
use super::super::heads::Classes;

/// `BertConfig`, and what copies it.
#[derive(Clone, Copy)]
pub(crate) struct Config {
    pub vocab_size: u64,
    pub hidden_size: u64,
    pub num_hidden_layers: u64,
    pub num_attention_heads: u64,
    pub intermediate_size: u64,
    pub max_position_embeddings: u64,
    pub type_vocab_size: u64,
    pub activation: Activation,
    pub hidden_dropout: f64,
    pub attention_dropout: f64,
    pub tie_word_embeddings: bool,
    pub layer_norm_eps: f64,
    pub pad_token_id: Option<u64>,
    /// The deviation that weights begin with.
    pub initializer_range: f64,
    pub classes: Classes,
}

/// What the config class of a model fills in.
#[derive(Clone, Copy)]
pub(crate) struct Defaults {
    pub vocab_size: u64,
    pub hidden_size: u64,
    pub num_hidden_layers: u64,
    pub num_attention_heads: u64,
    pub intermediate_size: u64,
    pub pad_token_id: u64,
}

impl Defaults {
    /// `BertConfig`'s.
    pub(crate) const BERT: Self = Self {
        vocab_size: 30522,
        hidden_size: 768,
        num_hidden_layers: 12,
        num_attention_heads: 12,
        intermediate_size: 3072,
        pad_token_id: 0,
    };
}

impl Config {
    /// The config of a model whose own class has these defaults.
    pub(crate) fn read(fields: &Fields, defaults: Defaults) -> Result<Self, FieldError> {
        fields.refuse_on("is_decoder", "only the encoder is simulated")?;
        fields.refuse_on("add_cross_attention", "a block's second attention, over an encoder, is not simulated")?;
        let vocab_size = fields.size("vocab_size", defaults.vocab_size)?;
        let hidden_dropout = fields.probability("hidden_dropout_prob", 0.1)?;
        let config = Self {
            vocab_size,
            hidden_size: fields.size("hidden_size", defaults.hidden_size)?,
            num_hidden_layers: fields.layers("num_hidden_layers", defaults.num_hidden_layers)?,
            num_attention_heads: fields.size("num_attention_heads", defaults.num_attention_heads)?,
            intermediate_size: fields.size("intermediate_size", defaults.intermediate_size)?,
            max_position_embeddings: fields.size("max_position_embeddings", 512)?,
            type_vocab_size: fields.size("type_vocab_size", 2)?,
            activation: Activation::from_name("hidden_act", fields.text("hidden_act", "gelu")?)?,
            hidden_dropout,
            attention_dropout: fields.probability("attention_probs_dropout_prob", 0.1)?,
            tie_word_embeddings: fields.flag("tie_word_embeddings", true)?,
            layer_norm_eps: fields.number("layer_norm_eps", 1e-12)?,
            pad_token_id: padding_row(fields, Some(defaults.pad_token_id), vocab_size),
            initializer_range: initializer_range(fields)?,
            classes: Classes::read(fields, "classifier_dropout", hidden_dropout)?,
        };
        check_divides("num_attention_heads", config.num_attention_heads, "hidden_size", config.hidden_size)?;
        let (hidden, layers) = (config.hidden_size, config.num_hidden_layers);
        bound_weights(&[
            ("vocab_size", [config.vocab_size, hidden], 2),
            ("max_position_embeddings", [config.max_position_embeddings, hidden], 1),
            ("type_vocab_size", [config.type_vocab_size, hidden], 1),
            ("intermediate_size", [config.intermediate_size, hidden], 2 * layers),
            ("hidden_size", [hidden, hidden], 4 * layers),
        ])?;
        Ok(config)
    }
}
