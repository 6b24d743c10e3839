//! What Gemma's configs have beyond those of Llama's relatives.

use super::decoder::{DecoderConfig, FULL_AND_SLIDING};
use crate::job::{FieldError, Fields};
use crate::model::nn::{LayerType, Rope};

/// What a Gemma config has beyond a decoder's.
#[derive(Clone)]
pub(crate) struct GemmaConfig {
    pub decoder: DecoderConfig,
    /// What attention caps its scores at, where layers hand it on.
    pub attn_logit_softcapping: Option<f64>,
    pub final_logit_softcapping: Option<f64>,
    pub query_pre_attn_scalar: f64,
    /// The rotary tables of each type of layer; one for all where there is only one.
    pub rotary: Vec<(LayerType, Rope)>,
    /// Whether each branch of a layer has a norm behind it too.
    pub is_sandwich: bool,
}

impl GemmaConfig {
    /// `softcapping`: what `attn_logit_softcapping` and `final_logit_softcapping` are by default.
    pub(crate) fn read(
        fields: &Fields,
        mut decoder: DecoderConfig,
        softcapping: [Option<f64>; 2],
    ) -> Result<Self, FieldError> {
        if fields.flag("use_bidirectional_attention", false)? {
            return Err(FieldError::unsimulated("use_bidirectional_attention", "only causal attention is simulated"));
        }
        if fields.0.get("sliding_window").is_some_and(serde_json::Value::is_null) {
            return Err(FieldError::new("sliding_window", "must be a positive integer, found null"));
        }
        decoder.sliding_window = fields.size("sliding_window", 4096)?;
        decoder.mask_types = FULL_AND_SLIDING;
        // An explicit null is no cap, an absent key the default one.
        let cap = |key: &str, default: Option<f64>| match fields.0.contains_key(key) {
            true => fields.optional_number(key),
            false => Ok(default),
        };
        Ok(Self {
            attn_logit_softcapping: cap("attn_logit_softcapping", softcapping[0])?,
            final_logit_softcapping: cap("final_logit_softcapping", softcapping[1])?,
            query_pre_attn_scalar: fields.positive("query_pre_attn_scalar", 256.0)?,
            rotary: vec![(LayerType::FullAttention, decoder.rope.clone())],
            is_sandwich: true,
            decoder,
        })
    }
}
