//! GLM-4.7-Flash (transformers/models/glm4_moe_lite/modeling_glm4_moe_lite.py): DeepSeek-V3's latent attention, GLM-4.5's experts.

use crate::building::{BuildError, Builder};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::GroupScores;

use super::decoder::DecoderDefaults;
use super::deepseek_v3::{Config, Latents, Turns, build_latent, read_latent};
use super::glm4_moe::{MoeConfig, MoeDefaults};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["glm4_moe_lite"], build };

/// What `Glm4MoeLiteConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 154_880,
    hidden_size: 2048,
    intermediate_size: 10_240,
    num_hidden_layers: 47,
    num_attention_heads: 20,
    num_key_value_heads: Some(20),
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    positions: 202_752,
    norm_eps: 1e-5,
    ..DecoderDefaults::LLAMA
};

/// The same class's latents.
const LATENTS: Latents = Latents {
    q_lora_rank: Some(768),
    kv_lora_rank: 512,
    qk_nope_head_dim: 192,
    qk_rope_head_dim: 64,
    v_head_dim: 256,
    turns: Turns::Interleaved,
    query_scale: None,
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = read_config(&model.config, at.dtype())?;
    Ok(build_latent(&config, at, options, |at| config.moe.group_router(at, Some(DType::Float32))))
}

fn read_config(fields: &Fields, dtype: DType) -> Result<Config, FieldError> {
    let (decoder, latents) = read_latent(fields, &DEFAULTS, &LATENTS)?;
    let scores = GroupScores { n_group: 1, topk_group: 1, norm_topk_prob: true, routed_scaling_factor: 1.8 };
    let defaults = MoeDefaults { inner: 1536, experts: 64, per_token: 4, shared: 1, scores, best_of_group: 2 };
    let moe = MoeConfig::read(fields, &decoder, dtype, &defaults)?;
    let is_sparse = sparse_layers(fields, decoder.num_hidden_layers)?;
    Ok(Config { decoder, latents, moe: moe.in_layers(is_sparse) })
}

/// Which layers have experts by `mlp_layer_types`: all but the first where there is none.
fn sparse_layers(fields: &Fields, layers: u64) -> Result<Vec<bool>, FieldError> {
    let key = "mlp_layer_types";
    let Some(types) = fields.texts(key)? else { return Ok((0..layers).map(|layer| layer > 0).collect()) };
    if types.len() as u64 != layers {
        let problem = format!("lists {} layers, num_hidden_layers is {layers}", types.len());
        return Err(FieldError::new(key, problem));
    }
    Ok(types.iter().map(|name| *name == "sparse").collect())
}
