//! Cohere's Command R7B and Command A (transformers/models/cohere2/modeling_cohere2.py): Cohere's layers with windows on three of
//! four, which alone have rotary embeddings.

use crate::building::{BuildError, Builder};
use crate::job::{FieldError, Fields, ModelSpec};
use crate::model::nn::LayerType;

use super::cohere::{new_model, read_cohere2_config};
use super::decoder::{DecoderConfig, FULL_AND_SLIDING};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["cohere2"], build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    Ok(new_model(at, read_config(&model.config)?, options))
}

fn read_config(fields: &Fields) -> Result<DecoderConfig, FieldError> {
    let pattern = fields.size("sliding_window_pattern", 4)?;
    let mut config = read_cohere2_config(fields)?.with_layer_types(fields, |layer| {
        if (layer + 1) % pattern == 0 { LayerType::FullAttention } else { LayerType::SlidingAttention }
    })?;
    // Its config class sets `head_dim` to this, whatever a file says.
    config.head_dim = config.hidden_size / config.num_attention_heads;
    config.rotary_dim = config.head_dim;
    config.turned_layers = Some(config.layer_types.iter().map(|kind| *kind == LayerType::SlidingAttention).collect());
    config.sliding_window = fields.size("sliding_window", 4096)?;
    config.mask_types = FULL_AND_SLIDING;
    Ok(config)
}
