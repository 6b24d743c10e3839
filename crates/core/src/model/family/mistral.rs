//! Mistral (transformers/models/mistral/modeling_mistral.py): Llama's decoder, with a window on every layer or on none.

use serde_json::Value;

use crate::building::{BuildError, Builder};
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::LayerType;

use super::decoder::{DecoderConfig, DecoderDefaults, SLIDING};
use super::llama::DecoderForCausalLm;
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["mistral"], build };

/// What `MistralConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    intermediate_size: 14336,
    num_key_value_heads: Some(8),
    reads_attention_bias: false,
    reads_mlp_bias: false,
    file: ModelingFile::Mistral,
    positions: 131_072,
    ..DecoderDefaults::LLAMA
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = read(&model.config)?;
    Ok(Box::new(DecoderForCausalLm::new(at, config, options)))
}

fn read(fields: &Fields) -> Result<DecoderConfig, FieldError> {
    let mut config = DecoderConfig::read(fields, &DEFAULTS)?;
    // An explicit null is no window, an absent key the default one.
    if fields.0.get("sliding_window") != Some(&Value::Null) {
        config.sliding_window = fields.size("sliding_window", 4096)?;
        config.mask_types = SLIDING;
        config.layer_types = vec![LayerType::SlidingAttention; config.num_hidden_layers as usize].into();
    }
    Ok(config)
}
