//! OLMo 3 (transformers/models/olmo3/modeling_olmo3.py): OLMo 2 with windows on three of four layers, and rotary embeddings of
//! their own for each type of layer.

use crate::building::{BuildError, Builder};
use crate::job::{FieldError, Fields, ModelSpec};
use crate::model::nn::{LayerType, Rope};

use super::decoder::{DecoderConfig, DecoderDefaults, FULL_AND_SLIDING};
use super::olmo2::{self, new_model};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["olmo3"], build };

/// What `Olmo3Config` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults { rope_theta: 500_000.0, ..olmo2::DEFAULTS };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    Ok(new_model(at, read_config(&model.config)?, options))
}

fn read_config(fields: &Fields) -> Result<DecoderConfig, FieldError> {
    let mut config = DecoderConfig::read(fields, &DEFAULTS)?.with_layer_types(fields, |layer| {
        if (layer + 1) % 4 == 0 { LayerType::FullAttention } else { LayerType::SlidingAttention }
    })?;
    let ropes = [("full_attention", LayerType::FullAttention), ("sliding_attention", LayerType::SlidingAttention)];
    let used = ropes.into_iter().filter(|(_, layer_type)| config.layer_types.contains(layer_type));
    let read = |(name, layer_type)| Ok((layer_type, read_rope(fields, name, config.positions)?));
    config.layer_ropes = used.map(read).collect::<Result<_, FieldError>>()?;
    config.sliding_window = fields.size("sliding_window", 4096)?;
    config.mask_types = FULL_AND_SLIDING;
    config.float_tables = true;
    Ok(config)
}

/// `rope_parameters` of a type of layer; `rope_scaling` of older configs is the full layers' alone.
fn read_rope(fields: &Fields, name: &str, positions: u64) -> Result<Rope, FieldError> {
    let of_type = match fields.object("rope_parameters")? {
        Some(parameters) => parameters.object(name)?,
        None if name == "full_attention" => fields.object("rope_scaling")?,
        None => None,
    };
    let theta = fields.positive("rope_theta", DEFAULTS.rope_theta)?;
    Rope::of_parameters(&of_type.unwrap_or_default(), fields, theta, positions)
}
