//! GLM-4.5 (transformers/models/glm4_moe/modeling_glm4_moe.py): the first layers dense, in the others a shared expert beside those that
//! DeepSeek-V3's router chooses.

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{
    AttentionOutput, Experts, ExpertsConfig, ExpertsForm, ExpertsKind, GroupRouter, GroupScores, RmsNorm, Scores,
    rotate, split_rotary,
};
use crate::op::cat;
use crate::tensor::Tensor;

use super::attention::{Projections, SelfAttention, attend};
use super::bounds::bound_weights;
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::gated_mlp::DecoderMlp;
use super::layer::{FeedForward, LayerCall};
use super::llama::{DecoderForCausalLm, LlamaDecoderLayer};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["glm4_moe"], build };

/// What `Glm4MoeConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 151_552,
    intermediate_size: 10944,
    num_hidden_layers: 46,
    num_attention_heads: 96,
    num_key_value_heads: Some(8),
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    positions: 131_072,
    norm_eps: 1e-5,
    ..DecoderDefaults::LLAMA
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let (decoder, moe) = read_config(&model.config, at.dtype())?;
    let new_layer = |at: &Builder, layer, decoder: &DecoderConfig| {
        let new_attention = |at: &Builder| Glm4MoeAttention::new(at, decoder, options);
        let new_mlp = |at: &Builder| moe.new_mlp(at, layer, decoder, DType::Float32);
        LlamaDecoderLayer::<_, _, RmsNorm>::with_parts(at, layer, decoder, new_attention, new_mlp)
    };
    Ok(Box::new(DecoderForCausalLm::with_layers(at, decoder.clone(), options, new_layer)))
}

fn read_config(fields: &Fields, dtype: DType) -> Result<(DecoderConfig, MoeConfig), FieldError> {
    let mut decoder = DecoderConfig::read(&with_head_dim(fields)?, &DEFAULTS)?.turning_any_part(
        fields,
        "partial_rotary_factor",
        0.5,
    )?;
    decoder.o_bias = false;
    decoder.qk_norm = fields.flag("use_qk_norm", false)?;
    let scores = GroupScores { n_group: 1, topk_group: 1, norm_topk_prob: true, routed_scaling_factor: 1.0 };
    let defaults = MoeDefaults { inner: 1408, experts: 128, first_dense: 1, scores };
    let moe = MoeConfig::read(fields, &decoder, dtype, &defaults)?;
    Ok((decoder, moe))
}

/// `hidden_size // num_attention_heads`, which need not divide.
fn with_head_dim(fields: &Fields) -> Result<Fields, FieldError> {
    let mut fields = fields.clone();
    if fields.optional_size("head_dim")?.is_none() {
        let heads = fields.size("num_attention_heads", DEFAULTS.num_attention_heads)?;
        let head_dim = fields.size("hidden_size", DEFAULTS.hidden_size)? / heads;
        fields.0.insert("head_dim".to_owned(), head_dim.into());
    }
    Ok(fields)
}

/// What config classes of mixtures with shared experts have where a config says nothing.
pub(crate) struct MoeDefaults {
    /// `moe_intermediate_size`: features within an expert.
    pub inner: u64,
    /// `n_routed_experts`: experts of a layer, but for the shared ones.
    pub experts: u64,
    /// `first_k_dense_replace`: layers without experts, the first ones.
    pub first_dense: u64,
    pub scores: GroupScores,
}

/// What the config of such a mixture has beyond a decoder's.
pub(crate) struct MoeConfig {
    experts: ExpertsConfig,
    scores: GroupScores,
    n_shared_experts: u64,
    first_k_dense_replace: u64,
}

impl MoeConfig {
    pub(crate) fn read(
        fields: &Fields,
        decoder: &DecoderConfig,
        dtype: DType,
        defaults: &MoeDefaults,
    ) -> Result<Self, FieldError> {
        let num_experts = fields.optional_size("n_routed_experts")?.or(fields.optional_size("num_local_experts")?);
        let experts = ExpertsConfig {
            hidden_size: decoder.hidden_size,
            intermediate_size: fields.size("moe_intermediate_size", defaults.inner)?,
            num_experts: num_experts.unwrap_or(defaults.experts),
            num_experts_per_tok: fields.size("num_experts_per_tok", 8)?,
            activation: decoder.activation,
            scores: Scores { softmax_casts: false, normalized: false, cast_back: false },
            form: ExpertsForm::read(fields)?,
            kind: ExpertsKind::Gated,
        };
        let scores = GroupScores::read(fields, defaults.scores)?;
        scores.check(&experts)?;
        let n_shared_experts = fields.size("n_shared_experts", 1)?;
        let inner = decoder.num_hidden_layers * 3 * (experts.num_experts + n_shared_experts);
        bound_weights(&[("n_routed_experts", [experts.intermediate_size, decoder.hidden_size], inner)])?;
        experts.check("moe_intermediate_size", dtype)?;
        Ok(Self { experts, scores, n_shared_experts, first_k_dense_replace: first_dense(fields, defaults)? })
    }

    /// The MLP of a layer: dense, or the experts, whose router's bias has this dtype.
    pub(crate) fn new_mlp(
        &self,
        at: &Builder,
        layer: usize,
        config: &DecoderConfig,
        bias: DType,
    ) -> Box<dyn FeedForward> {
        if (layer as u64) < self.first_k_dense_replace {
            return Box::new(DecoderMlp::new(at, config));
        }
        let inner = self.experts.intermediate_size * self.n_shared_experts;
        let shared = DecoderConfig { intermediate_size: inner, ..config.clone() };
        Box::new(MoeWithShared {
            module: at.module(),
            experts: Experts::new(&at.at("experts"), &self.experts),
            gate: GroupRouter::new(&at.at("gate"), &self.experts, self.scores, bias),
            shared_experts: DecoderMlp::new(&at.at("shared_experts"), &shared),
        })
    }
}

/// `first_k_dense_replace`, which may be 0.
fn first_dense(fields: &Fields, defaults: &MoeDefaults) -> Result<u64, FieldError> {
    let key = "first_k_dense_replace";
    let Some(value) = fields.get(key) else { return Ok(defaults.first_dense) };
    value.as_u64().ok_or_else(|| FieldError::new(key, "must be a number of layers"))
}

/// `Glm4MoeMoE`, and `DeepseekV3MoE`
struct MoeWithShared {
    module: Module,
    experts: Experts,
    gate: GroupRouter,
    shared_experts: DecoderMlp,
}

impl FeedForward for MoeWithShared {
    fn forward(&self, residuals: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let routing = self.gate.forward(residuals);
        let mut hidden_states = residuals.view(&[residuals.numel() / residuals.size(-1), residuals.size(-1)]);
        hidden_states = self.experts.forward(&hidden_states, &routing, call.decodes).view(residuals.sizes());
        let shared = self.shared_experts.forward(residuals);
        &hidden_states + &shared
    }
}

/// `apply_rotary_pos_emb`: the tables turn the first part of each head.
pub(crate) fn apply_rotary_pos_emb(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    let (cos, sin) = (cos.unsqueeze(1), sin.unsqueeze(1));
    let rotary_dim = cos.size(-1);
    let (q_rot, q_pass) = split_rotary(q, rotary_dim);
    let (k_rot, k_pass) = split_rotary(k, rotary_dim);
    let mut q_embed = rotate(&q_rot, &cos, &sin);
    let mut k_embed = rotate(&k_rot, &cos, &sin);
    q_embed = cat(&[&q_embed, &q_pass], 3);
    k_embed = cat(&[&k_embed, &k_pass], 3);
    (q_embed, k_embed)
}

struct Glm4MoeAttention {
    module: Module,
    projections: Projections,
    norms: Option<(RmsNorm, RmsNorm)>,
    config: DecoderConfig,
    options: RunOptions,
}

impl Glm4MoeAttention {
    fn new(at: &Builder, config: &DecoderConfig, options: &RunOptions) -> Self {
        let norm = |name| RmsNorm::new(&at.at(name), config.head_dim, config.norm_eps);
        Self {
            module: at.module(),
            projections: Projections::new(at, config, "o_proj"),
            norms: config.qk_norm.then(|| (norm("q_norm"), norm("k_norm"))),
            config: config.clone(),
            options: options.clone(),
        }
    }
}

impl SelfAttention for Glm4MoeAttention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let Projections { q_proj, k_proj, v_proj, .. } = &self.projections;
        let mut query_states = self.projections.split_heads(&q_proj.forward(hidden_states));
        let mut key_states = self.projections.split_heads(&k_proj.forward(hidden_states));
        let mut value_states = self.projections.split_heads(&v_proj.forward(hidden_states));
        if let Some((q_norm, k_norm)) = &self.norms {
            query_states = q_norm.forward(&query_states);
            key_states = k_norm.forward(&key_states);
        }
        query_states = query_states.transpose(1, 2);
        key_states = key_states.transpose(1, 2);
        value_states = value_states.transpose(1, 2);
        (query_states, key_states) = apply_rotary_pos_emb(&query_states, &key_states, &call.cos, &call.sin);
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let (attn_output, attn_weights) = attend(states, call, self.config.scores(), &self.options);
        (self.projections.merge_heads(attn_output), attn_weights)
    }
}
