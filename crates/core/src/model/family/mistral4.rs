//! Mistral Small 4's text model (transformers/models/mistral4/modeling_mistral4.py): DeepSeek-V3's latent attention, whose queries are
//! scaled by their positions, and its experts, which a softmax chooses.

use serde_json::json;

use crate::building::{BuildError, Builder};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::GroupScores;

use super::decoder::DecoderDefaults;
use super::deepseek_v3::{Config, Latents, QueryScale, Turns, build_latent, read_latent};
use super::glm4_moe::{MoeConfig, MoeDefaults, first_dense};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["mistral4"], build };

/// What `Mistral4Config` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 131_072,
    intermediate_size: 12_288,
    num_hidden_layers: 36,
    num_key_value_heads: Some(32),
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    positions: 1_048_576,
    pad_token_id: Some(11),
    ..DecoderDefaults::LLAMA
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = read_config(&with_rope(&model.config)?, at.dtype())?;
    Ok(build_latent(&config, at, options, |at| config.moe.group_router(at, None)))
}

fn read_config(fields: &Fields, dtype: DType) -> Result<Config, FieldError> {
    let latents = Latents {
        q_lora_rank: Some(1024),
        kv_lora_rank: 256,
        qk_nope_head_dim: 64,
        qk_rope_head_dim: 64,
        v_head_dim: 128,
        turns: Turns::Interleaved,
        query_scale: Some(query_scale(fields)?),
    };
    let (decoder, latents) = read_latent(fields, &DEFAULTS, &latents)?;
    let scores = GroupScores { n_group: 1, topk_group: 1, norm_topk_prob: true, routed_scaling_factor: 1.0 };
    let defaults = MoeDefaults { inner: 2048, experts: 128, per_token: 4, shared: 1, scores, best_of_group: 2 };
    let moe = MoeConfig::read(fields, &decoder, dtype, &defaults)?;
    let dense = first_dense(fields, 0, &decoder)?;
    Ok(Config { decoder, latents, moe: moe.in_layers(dense) })
}

/// The config with the rotary parameters that its class has where it says nothing.
fn with_rope(fields: &Fields) -> Result<Fields, FieldError> {
    let mut fields = fields.clone();
    if fields.object("rope_parameters")?.is_none() && fields.object("rope_scaling")?.is_none() {
        let parameters = json!({
            "rope_type": "yarn", "rope_theta": 10_000.0, "factor": 128.0, "original_max_position_embeddings": 8192,
            "beta_fast": 32.0, "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1
        });
        fields.0.insert("rope_parameters".to_owned(), parameters);
    }
    Ok(fields)
}

fn query_scale(fields: &Fields) -> Result<QueryScale, FieldError> {
    let parameters = match fields.object("rope_scaling")? {
        Some(parameters) => parameters,
        None => fields.object("rope_parameters")?.unwrap_or_default(),
    };
    let beta = parameters.needed("llama_4_scaling_beta")?;
    let original_max_positions = parameters.needed("original_max_position_embeddings")? as u64;
    Ok(QueryScale { beta, original_max_positions })
}
