//! Granite (transformers/models/granite/modeling_granite.py): Llama's decoder, in which embeddings, both branches of a layer and
//! scores are multiplied and logits divided by numbers of the config, even where they are 1.

use crate::building::{BuildError, Builder};
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};

use super::decoder::{DecoderConfig, DecoderDefaults, Multipliers};
use super::llama::DecoderForCausalLm;
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["granite"], build };

/// What `GraniteConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults { file: ModelingFile::Later, ..DecoderDefaults::LLAMA };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    Ok(Box::new(DecoderForCausalLm::new(at, read_config(&model.config)?, options)))
}

pub(crate) fn read_config(fields: &Fields) -> Result<DecoderConfig, FieldError> {
    let multiplier = |key| fields.number(key, 1.0);
    Ok(DecoderConfig {
        attention_multiplier: Some(multiplier("attention_multiplier")?),
        multipliers: Some(Multipliers {
            embedding: multiplier("embedding_multiplier")?,
            residual: multiplier("residual_multiplier")?,
            logits_scaling: multiplier("logits_scaling")?,
        }),
        ..DecoderConfig::read(fields, &DEFAULTS)?
    })
}
