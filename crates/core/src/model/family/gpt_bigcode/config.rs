//! `GPTBigCodeConfig` (transformers 5.17).

use crate::building::Builder;
use crate::job::{FieldError, Fields};
use crate::model::nn::Activation;

use super::super::bounds::{bound_weights, check_divides};
use super::super::decoder::initializer_range;

/// `GPTBigCodeConfig`
#[derive(Clone, Copy)]
pub(super) struct Config {
    pub vocab_size: u64,
    pub n_positions: u64,
    pub n_embd: u64,
    pub n_layer: u64,
    pub n_head: u64,
    pub n_inner: u64,
    pub activation: Activation,
    pub resid_pdrop: f64,
    pub embd_pdrop: f64,
    pub attn_pdrop: f64,
    pub multi_query: bool,
    pub scale_attn_weights: bool,
    pub tie_word_embeddings: bool,
    pub layer_norm_epsilon: f64,
    /// The deviation that weights begin with.
    pub initializer_range: f64,
}

impl Config {
    pub(super) fn read(fields: &Fields) -> Result<Self, FieldError> {
        let n_embd = fields.size("n_embd", 768)?;
        let activation = fields.text("activation_function", "gelu_pytorch_tanh")?;
        let config = Self {
            vocab_size: fields.size("vocab_size", 50257)?,
            n_positions: fields.size("n_positions", 1024)?,
            n_embd,
            n_layer: fields.layers("n_layer", 12)?,
            n_head: fields.size("n_head", 12)?,
            n_inner: fields.size("n_inner", 4 * n_embd)?,
            activation: Activation::from_name("activation_function", activation)?,
            resid_pdrop: fields.probability("resid_pdrop", 0.1)?,
            embd_pdrop: fields.probability("embd_pdrop", 0.1)?,
            attn_pdrop: fields.probability("attn_pdrop", 0.1)?,
            multi_query: fields.flag("multi_query", true)?,
            scale_attn_weights: fields.flag("scale_attn_weights", true)?,
            tie_word_embeddings: fields.flag("tie_word_embeddings", true)?,
            layer_norm_epsilon: fields.number("layer_norm_epsilon", 1e-5)?,
            initializer_range: initializer_range(fields)?,
        };
        check_divides("n_head", config.n_head, "n_embd", config.n_embd)?;
        bound_weights(&[
            ("vocab_size", [config.vocab_size, config.n_embd], 2),
            ("n_positions", [config.n_positions, config.n_embd], 1),
            ("n_positions", [config.n_positions, config.n_positions], 1),
            ("n_inner", [config.n_inner, config.n_embd], 2 * config.n_layer),
            ("n_embd", [config.n_embd, config.n_embd], 4 * config.n_layer),
        ])?;
        Ok(config)
    }

    pub(super) fn head_dim(&self) -> u64 {
        self.n_embd / self.n_head
    }

    pub(super) fn kv_dim(&self) -> u64 {
        if self.multi_query { self.head_dim() } else { self.n_embd }
    }

    /// The builder of a projection back to the residual stream: two a block, and what begins smaller the deeper the model.
    pub(super) fn residual(&self, at: &Builder) -> Builder {
        at.deviating(self.initializer_range / ((2 * self.n_layer) as f64).sqrt())
    }
}
