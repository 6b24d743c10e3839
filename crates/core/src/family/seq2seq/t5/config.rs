//! What configs of T5 and mT5 say.

use crate::job::{FieldError, Fields};
use crate::model::family::RunOptions;
use crate::model::family::bounds::bound_weights;
use crate::model::nn::Activation;

/// `T5Config` and `MT5Config` (transformers 5.17), under their own names.
#[derive(Clone)]
pub(super) struct Config {
    pub vocab_size: u64,
    pub d_model: u64,
    pub d_kv: u64,
    pub d_ff: u64,
    pub num_layers: u64,
    pub num_decoder_layers: u64,
    pub num_heads: u64,
    pub relative_attention_num_buckets: u64,
    pub dropout_rate: f64,
    pub layer_norm_epsilon: f64,
    pub activation: Activation,
    pub is_gated_act: bool,
    pub initializer_factor: f64,
    /// `tie_word_embeddings` as it is written. The classes tie in any case, but `from_pretrained` leaves a head apart that a checkpoint
    /// has beside another embedding, as those have whose configs say so (v1.1, Flan, mT5).
    pub is_tied: bool,
    /// Only T5 scales what it projects to the vocabulary, where its head is tied.
    pub scales_outputs: bool,
    pub options: RunOptions,
}

/// Where the two config classes differ.
#[derive(Clone, Copy)]
pub(super) struct Defaults {
    pub vocab_size: u64,
    pub d_ff: u64,
    pub num_layers: u64,
    pub num_heads: u64,
    pub feed_forward_proj: &'static str,
    pub scales_outputs: bool,
}

impl Defaults {
    pub(super) fn of(model_type: &str) -> Self {
        match model_type {
            "mt5" => Self {
                vocab_size: 250_112,
                d_ff: 1024,
                num_layers: 8,
                num_heads: 6,
                feed_forward_proj: "gated-gelu",
                scales_outputs: false,
            },
            _ => Self {
                vocab_size: 32128,
                d_ff: 2048,
                num_layers: 6,
                num_heads: 8,
                feed_forward_proj: "relu",
                scales_outputs: true,
            },
        }
    }
}

impl Config {
    pub(super) fn read(fields: &Fields, defaults: Defaults, options: &RunOptions) -> Result<Self, FieldError> {
        fields.size("relative_attention_max_distance", 128)?;
        let num_layers = fields.layers("num_layers", defaults.num_layers)?;
        let (is_gated_act, activation) =
            feed_forward_of(fields.text("feed_forward_proj", defaults.feed_forward_proj)?)?;
        let is_tied = fields.flag("tie_word_embeddings", true)?;
        let config = Self {
            vocab_size: fields.size("vocab_size", defaults.vocab_size)?,
            d_model: fields.size("d_model", 512)?,
            d_kv: fields.size("d_kv", 64)?,
            d_ff: fields.size("d_ff", defaults.d_ff)?,
            num_layers,
            num_decoder_layers: fields.layers("num_decoder_layers", num_layers)?,
            num_heads: fields.size("num_heads", defaults.num_heads)?,
            relative_attention_num_buckets: fields.size("relative_attention_num_buckets", 32)?,
            dropout_rate: fields.probability("dropout_rate", 0.1)?,
            layer_norm_epsilon: fields.number("layer_norm_epsilon", 1e-6)?,
            activation,
            is_gated_act,
            initializer_factor: fields.number("initializer_factor", 1.0)?,
            is_tied,
            scales_outputs: is_tied && defaults.scales_outputs,
            options: options.clone(),
        };
        config.bound()?;
        Ok(config)
    }

    fn bound(&self) -> Result<(), FieldError> {
        let inner = self.num_heads * self.d_kv;
        let (encoder, decoder) = (self.num_layers, self.num_decoder_layers);
        bound_weights(&[
            ("vocab_size", [self.vocab_size, self.d_model], 2),
            ("d_ff", [self.d_ff, self.d_model], 3 * (encoder + decoder)),
            ("num_heads", [inner, self.d_model], 4 * (encoder + 2 * decoder)),
            ("relative_attention_num_buckets", [self.relative_attention_num_buckets, self.num_heads], 2),
        ])
    }
}

/// `feed_forward_proj`: `relu`, or `gated-` before an activation; `gated-gelu` is GPT-2's.
fn feed_forward_of(written: &str) -> Result<(bool, Activation), FieldError> {
    let key = "feed_forward_proj";
    let (is_gated, name) = match written.strip_prefix("gated-") {
        Some("gelu") => (true, "gelu_new"),
        Some(name) => (true, name),
        None => (false, written),
    };
    Ok((is_gated, Activation::from_name(key, name)?))
}
