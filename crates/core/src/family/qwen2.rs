//! Qwen2, Qwen3 and Mistral (transformers/models/{qwen2,qwen3,mistral}): Llama's decoder with other defaults, biases
//! on q, k and v (Qwen2) or norms on q and k (Qwen3).

use crate::nn::{BuildError, Builder};
use crate::spec::ModelSpec;

use super::llama::{DecoderConfig, DecoderDefaults, DecoderForCausalLm};
use super::{Family, Model, RunOptions};

pub(super) const FAMILY: Family = Family { model_types: &["qwen2", "qwen3", "mistral"], has_begin_token: false, build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let defaults = DecoderDefaults {
        qkv_bias: model.model_type == "qwen2",
        qk_norm: model.model_type == "qwen3",
        ..DecoderDefaults::LLAMA
    };
    Ok(Box::new(DecoderForCausalLm::new(at, DecoderConfig::read(&model.config, &defaults)?, *options)))
}
