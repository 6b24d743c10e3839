//! DeepSeek-V3 (transformers/models/deepseek_v3/modeling_deepseek_v3.py): keys and values from one latent of each token, the first layers
//! dense, in the others a shared expert beside those that its router chooses.

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{
    AttentionOutput, GroupScores, Linear, RmsNorm, Router, apply_rotary_pos_emb, rotate_complex, rotate_halves,
};
use crate::op::{cat, copied_beside};
use crate::tensor::Tensor;

use super::attention::{SelfAttention, attend, join_heads};
use super::bounds::bound_weights;
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::glm4_moe::{MoeConfig, MoeDefaults, first_dense};
use super::layer::LayerCall;
use super::llama::{DecoderForCausalLm, LlamaDecoderLayer};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["deepseek_v3"], build };

/// What `DeepseekV3Config` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 129_280,
    hidden_size: 7168,
    intermediate_size: 18432,
    num_hidden_layers: 61,
    num_attention_heads: 128,
    num_key_value_heads: Some(128),
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    positions: 4096,
    ..DecoderDefaults::LLAMA
};

/// What norms of latents add to a variance, whatever the config says.
const EPS: f64 = 1e-6;

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = Config::read(&model.config, at.dtype())?;
    Ok(build_latent(&config, at, options, |at| config.moe.group_router(at, Some(at.dtype()))))
}

impl Config {
    fn read(fields: &Fields, dtype: DType) -> Result<Self, FieldError> {
        let (decoder, latents) = read_latent(fields, &DEFAULTS, &LATENTS)?;
        let scores = GroupScores { n_group: 8, topk_group: 4, norm_topk_prob: true, routed_scaling_factor: 2.5 };
        let defaults = MoeDefaults { inner: 2048, experts: 256, per_token: 8, shared: 1, scores, best_of_group: 2 };
        let moe = MoeConfig::read(fields, &decoder, dtype, &defaults)?;
        let dense = first_dense(fields, 3, &decoder)?;
        Ok(Self { decoder, latents, moe: moe.in_layers(dense) })
    }
}

/// The model of such a config, with what `new_gate` makes as its routers.
pub(crate) fn build_latent(
    config: &Config,
    at: &Builder,
    options: &RunOptions,
    new_gate: impl Fn(&Builder) -> Box<dyn Router>,
) -> Box<dyn Model> {
    let new_layer = |at: &Builder, layer, decoder: &DecoderConfig| {
        let new_attention = |at: &Builder| -> Box<dyn SelfAttention> {
            Box::new(DeepseekV3Attention::new(at, decoder, config.latents, options))
        };
        let new_mlp = |at: &Builder| config.moe.new_mlp(at, layer, decoder, &new_gate);
        LlamaDecoderLayer::<_, _, RmsNorm>::with_parts(at, layer, decoder, new_attention, new_mlp)
    };
    Box::new(DecoderForCausalLm::with_layers(at, config.decoder.clone(), options, new_layer))
}

/// What a mixture with latent attention reads.
pub(crate) struct Config {
    pub decoder: DecoderConfig,
    pub latents: Latents,
    pub moe: MoeConfig,
}

/// The sizes of multi-head latent attention.
#[derive(Clone, Copy)]
pub(crate) struct Latents {
    pub q_lora_rank: Option<u64>,
    pub kv_lora_rank: u64,
    pub qk_nope_head_dim: u64,
    pub qk_rope_head_dim: u64,
    pub v_head_dim: u64,
    pub turns: Turns,
    /// What Mistral 4 multiplies queries by.
    pub query_scale: Option<QueryScale>,
}

/// Which numbers of a head rotary embeddings turn with each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turns {
    Halves,
    /// Neighbours, which are laid apart.
    Interleaved,
    /// Neighbours, as complex numbers.
    Complex,
}

/// What queries are multiplied by beyond the positions of the first training (`get_llama_4_attn_scale`).
#[derive(Clone, Copy)]
pub(crate) struct QueryScale {
    pub beta: f64,
    pub original_max_positions: u64,
}

/// What `DeepseekV3Config` has.
const LATENTS: Latents = Latents {
    q_lora_rank: Some(1536),
    kv_lora_rank: 512,
    qk_nope_head_dim: 128,
    qk_rope_head_dim: 64,
    v_head_dim: 128,
    turns: Turns::Interleaved,
    query_scale: None,
};

/// Decoder and sizes of latent attention, with what the config class has where a config says nothing.
pub(crate) fn read_latent(
    fields: &Fields,
    defaults: &DecoderDefaults,
    latents: &Latents,
) -> Result<(DecoderConfig, Latents), FieldError> {
    let latents = Latents::read(fields, latents)?;
    let mut turned = fields.clone();
    turned.0.insert("head_dim".to_owned(), latents.qk_rope_head_dim.into());
    let mut decoder = DecoderConfig::read(&turned, defaults)?;
    let heads = decoder.num_attention_heads;
    if decoder.num_key_value_heads != heads {
        let problem = format!("is {}: every of {heads} heads has its own", decoder.num_key_value_heads);
        return Err(FieldError::new("num_key_value_heads", problem));
    }
    let (layers, head_dim) = (decoder.num_hidden_layers, latents.qk_head_dim() + latents.v_head_dim);
    let ranks = latents.kv_lora_rank + latents.q_lora_rank.unwrap_or(decoder.hidden_size);
    bound_weights(&[("kv_lora_rank", [heads * head_dim, ranks + decoder.hidden_size], 2 * layers)])?;
    decoder.attention_multiplier = Some(latents.scaling(fields)?);
    Ok((decoder, latents))
}

impl Latents {
    fn read(fields: &Fields, otherwise: &Self) -> Result<Self, FieldError> {
        let is_null = fields.0.get("q_lora_rank").is_some_and(serde_json::Value::is_null);
        let rank = fields.optional_size("q_lora_rank")?.or(otherwise.q_lora_rank);
        let lies_apart = otherwise.turns == Turns::Complex || fields.flag("rope_interleave", true)?;
        Ok(Self {
            q_lora_rank: if is_null { None } else { rank },
            kv_lora_rank: fields.size("kv_lora_rank", otherwise.kv_lora_rank)?,
            qk_nope_head_dim: fields.size("qk_nope_head_dim", otherwise.qk_nope_head_dim)?,
            qk_rope_head_dim: fields.size("qk_rope_head_dim", otherwise.qk_rope_head_dim)?,
            v_head_dim: fields.size("v_head_dim", otherwise.v_head_dim)?,
            turns: if lies_apart { otherwise.turns } else { Turns::Halves },
            query_scale: otherwise.query_scale,
        })
    }

    const fn qk_head_dim(&self) -> u64 {
        self.qk_nope_head_dim + self.qk_rope_head_dim
    }

    /// `yarn_apply_mscale(rope_parameters, qk_head_dim ** -0.5)`
    fn scaling(&self, fields: &Fields) -> Result<f64, FieldError> {
        let scaling = (self.qk_head_dim() as f64).powf(-0.5);
        let parameters = match fields.object("rope_scaling")? {
            Some(parameters) => parameters,
            None => fields.object("rope_parameters")?.unwrap_or_default(),
        };
        let name = parameters.text("rope_type", parameters.text("type", "default")?)?;
        let all_dim = parameters.number("mscale_all_dim", 0.0)?;
        if name == "default" || all_dim == 0.0 {
            return Ok(scaling);
        }
        let factor = parameters.needed("factor")?;
        let mscale = if factor <= 1.0 { 1.0 } else { 0.1 * all_dim * factor.ln() + 1.0 };
        Ok(scaling * mscale * mscale)
    }
}

/// `q_proj`, or two projections with a norm between.
struct QueryProjection {
    /// `q_a_proj` and `q_a_layernorm`
    latent: Option<(Linear, RmsNorm)>,
    /// `q_proj`, or `q_b_proj` behind a latent.
    projection: Linear,
}

impl QueryProjection {
    fn new(at: &Builder, config: &DecoderConfig, latents: Latents) -> Self {
        let (hidden, width) = (config.hidden_size, config.num_attention_heads * latents.qk_head_dim());
        let latent = latents.q_lora_rank.map(|rank| {
            let q_a_proj = Linear::new(&at.at("q_a_proj"), hidden, rank, config.qkv_bias);
            (q_a_proj, RmsNorm::new(&at.at("q_a_layernorm"), rank, EPS))
        });
        let name = if latent.is_some() { "q_b_proj" } else { "q_proj" };
        let projection = Linear::new(&at.at(name), latents.q_lora_rank.unwrap_or(hidden), width, false);
        Self { latent, projection }
    }

    fn forward(&self, hidden_states: &Tensor) -> Tensor {
        match &self.latent {
            None => self.projection.forward(hidden_states),
            Some((q_a_proj, q_a_layernorm)) => {
                let normed = q_a_layernorm.forward(&q_a_proj.forward(hidden_states));
                self.projection.forward(&normed)
            }
        }
    }
}

struct DeepseekV3Attention {
    module: Module,
    query: QueryProjection,
    kv_a_proj_with_mqa: Linear,
    kv_a_layernorm: RmsNorm,
    kv_b_proj: Linear,
    o_proj: Linear,
    latents: Latents,
    config: DecoderConfig,
    options: RunOptions,
}

impl DeepseekV3Attention {
    fn new(at: &Builder, config: &DecoderConfig, latents: Latents, options: &RunOptions) -> Self {
        let (hidden, heads, bias) = (config.hidden_size, config.num_attention_heads, config.qkv_bias);
        let Latents { kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim, .. } = latents;
        let linear = |name, inputs, outputs, bias| Linear::new(&at.at(name), inputs, outputs, bias);
        Self {
            module: at.module(),
            query: QueryProjection::new(at, config, latents),
            kv_a_proj_with_mqa: linear("kv_a_proj_with_mqa", hidden, kv_lora_rank + qk_rope_head_dim, bias),
            kv_a_layernorm: RmsNorm::new(&at.at("kv_a_layernorm"), kv_lora_rank, EPS),
            kv_b_proj: linear("kv_b_proj", kv_lora_rank, heads * (qk_nope_head_dim + v_head_dim), false),
            o_proj: linear("o_proj", heads * v_head_dim, hidden, bias),
            latents,
            config: config.clone(),
            options: options.clone(),
        }
    }

    /// Keys and values of all heads from what the cache holds.
    fn expand_kv(&self, kv_nope: &Tensor, k_rot: &Tensor) -> (Tensor, Tensor) {
        let Latents { qk_nope_head_dim, v_head_dim, .. } = self.latents;
        let [rows, tokens, heads] = [kv_nope.size(0), kv_nope.size(2), self.config.num_attention_heads];
        let expanded = self.kv_b_proj.forward(kv_nope);
        let kv_nope = expanded.view(&[rows, tokens, heads, qk_nope_head_dim + v_head_dim]).transpose(1, 2);
        let [k_nope, value_states] = kv_nope.split_at(qk_nope_head_dim);
        let k_rot = k_rot.expand(&[rows, heads, tokens, k_rot.size(-1)]);
        (copied_beside(&k_nope, &k_rot), value_states)
    }

    fn turn(&self, q_rot: &Tensor, k_rot: &Tensor, call: &LayerCall) -> (Tensor, Tensor) {
        match self.latents.turns {
            Turns::Halves => apply_rotary_pos_emb(q_rot, k_rot, &call.cos, &call.sin),
            Turns::Interleaved => apply_rotary_pos_emb_interleave(q_rot, k_rot, &call.cos, &call.sin),
            Turns::Complex => apply_rotary_emb(q_rot, k_rot, &call.cos),
        }
    }
}

impl SelfAttention for DeepseekV3Attention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let (rows, tokens, latents) = (hidden_states.size(0), hidden_states.size(1), self.latents);
        let mut q_states = self.query.forward(hidden_states);
        let heads = self.config.num_attention_heads;
        q_states = q_states.view(&[rows, tokens, heads, latents.qk_head_dim()]).transpose(1, 2);
        let [q_pass, mut q_rot] = q_states.split_at(latents.qk_nope_head_dim);
        let compressed_kv = self.kv_a_proj_with_mqa.forward(hidden_states);
        let [mut kv_nope, mut k_rot] = compressed_kv.split_at(latents.kv_lora_rank);
        kv_nope = self.kv_a_layernorm.forward(&kv_nope);
        kv_nope = kv_nope.view(&[rows, 1, tokens, latents.kv_lora_rank]);
        k_rot = k_rot.view(&[rows, 1, tokens, latents.qk_rope_head_dim]);
        (q_rot, k_rot) = self.turn(&q_rot, &k_rot, call);
        if let Some(cache) = &call.cache {
            (kv_nope, k_rot) = cache.update(layer, &kv_nope, &k_rot);
        }
        let mut query_states = cat(&[&q_pass, &q_rot], 3);
        if let Some(scale) = latents.query_scale {
            query_states = {
                let scaling = scale.of_positions(&call.position_ids).to(query_states.dtype());
                &query_states * &scaling
            };
        }
        let (key_states, value_states) = self.expand_kv(&kv_nope, &k_rot);
        let states = [&query_states, &key_states, &value_states];
        let (mut attn_output, attn_weights) = attend(states, call, self.config.scores(), &self.options);
        attn_output = join_heads(&attn_output);
        (self.o_proj.forward(&attn_output), attn_weights)
    }
}

impl QueryScale {
    /// `1 + beta * log(1 + floor(positions_ids / max_position_embeddings))` of positions [rows, tokens], for queries [rows, heads, tokens, width].
    fn of_positions(self, position_ids: &Tensor) -> Tensor {
        let mut scaling = position_ids.divide_int(self.original_max_positions);
        scaling = scaling.floor();
        scaling = scaling.add_scalar(1.0);
        scaling = scaling.log();
        scaling = scaling.mul_scalar(self.beta);
        scaling = scaling.add_scalar(1.0);
        scaling.unsqueeze(1).unsqueeze(3)
    }
}

/// `apply_rotary_emb` of DeepSeek-V2.
fn apply_rotary_emb(xq: &Tensor, xk: &Tensor, freqs_cis: &Tensor) -> (Tensor, Tensor) {
    let (xq_complex, xk_complex) = (xq.as_complex(), xk.as_complex());
    let freqs_cis = freqs_cis.unsqueeze(1);
    let xq_out = rotate_complex(&xq_complex, &freqs_cis).to(xq.dtype());
    let xk_out = rotate_complex(&xk_complex, &freqs_cis).to(xk.dtype());
    (xq_out, xk_out)
}

/// `apply_rotary_pos_emb_interleave`: neighbours are turned and laid apart.
fn apply_rotary_pos_emb_interleave(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    let half = |table: &Tensor| table.narrow(2, 0..table.size(-1) / 2).unsqueeze(1);
    let (cos, sin) = (half(cos), half(sin));
    let (q1, q2) = (q.every_other(0), q.every_other(1));
    let (k1, k2) = (k.every_other(0), k.every_other(1));
    let q_embed = rotate_halves(&q1, &q2, &cos, &sin);
    let k_embed = rotate_halves(&k1, &k2, &cos, &sin);
    (q_embed, k_embed)
}
