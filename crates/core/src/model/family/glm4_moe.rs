//! GLM-4.5 (transformers/models/glm4_moe/modeling_glm4_moe.py): the first layers dense, in the others a shared expert beside those that
//! DeepSeek-V3's router chooses.

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{
    AttentionOutput, Experts, ExpertsConfig, ExpertsForm, ExpertsKind, GroupRouter, GroupScores, RmsNorm, Router,
    Scores, rotate, split_rotary,
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
        let new_attention =
            |at: &Builder| -> Box<dyn SelfAttention> { Box::new(Glm4MoeAttention::new(at, decoder, options)) };
        let new_mlp = |at: &Builder| moe.new_mlp(at, layer, decoder, |at| moe.group_router(at, Some(DType::Float32)));
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
    let defaults = MoeDefaults { inner: 1408, experts: 128, per_token: 8, shared: 1, scores, best_of_group: 2 };
    let moe = MoeConfig::read(fields, &decoder, dtype, &defaults)?;
    let dense = first_dense(fields, 1, &decoder)?;
    Ok((decoder, moe.in_layers(dense)))
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
    /// `num_experts_per_tok`
    pub per_token: u64,
    /// `n_shared_experts`
    pub shared: u64,
    pub scores: GroupScores,
    /// So many experts of a group decide whether it is looked at; 0 where there are no groups.
    pub best_of_group: u64,
}

/// What the config of such a mixture has beyond a decoder's.
pub(crate) struct MoeConfig {
    pub experts: ExpertsConfig,
    pub scores: GroupScores,
    n_shared_experts: u64,
    /// Whether a layer has experts, of each layer; all have where the list ends.
    is_sparse: Vec<bool>,
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
            num_experts_per_tok: fields.size("num_experts_per_tok", defaults.per_token)?,
            activation: decoder.activation,
            scores: Scores { softmax_casts: false, normalized: false, cast_back: false },
            form: ExpertsForm::read(fields)?,
            kind: ExpertsKind::Gated,
        };
        let scores = GroupScores::read(fields, defaults.scores)?;
        if defaults.best_of_group > 0 {
            scores.check(&experts, defaults.best_of_group)?;
        }
        let n_shared_experts = fields.size("n_shared_experts", defaults.shared)?;
        let inner = decoder.num_hidden_layers * 3 * (experts.num_experts + n_shared_experts);
        bound_weights(&[("n_routed_experts", [experts.intermediate_size, decoder.hidden_size], inner)])?;
        experts.check("moe_intermediate_size", dtype)?;
        Ok(Self { experts, scores, n_shared_experts, is_sparse: Vec::new() })
    }

    /// The same with experts in the layers for which this says so.
    pub(crate) fn in_layers(self, is_sparse: Vec<bool>) -> Self {
        Self { is_sparse, ..self }
    }

    /// DeepSeek-V3's router, with a bias in this dtype if any.
    pub(crate) fn group_router(&self, at: &Builder, bias: Option<DType>) -> Box<dyn Router> {
        Box::new(GroupRouter::new(at, &self.experts, self.scores, bias))
    }

    /// The MLP of a layer: dense, or the experts with what `new_gate` makes.
    pub(crate) fn new_mlp(
        &self,
        at: &Builder,
        layer: usize,
        config: &DecoderConfig,
        new_gate: impl FnOnce(&Builder) -> Box<dyn Router>,
    ) -> Box<dyn FeedForward> {
        if self.is_sparse.get(layer) == Some(&false) {
            return Box::new(DecoderMlp::new(at, config));
        }
        let inner = self.experts.intermediate_size * self.n_shared_experts;
        let shared = DecoderConfig { intermediate_size: inner, ..config.clone() };
        Box::new(MoeWithShared {
            module: at.module(),
            experts: Experts::new(&at.at("experts"), &self.experts),
            gate: new_gate(&at.at("gate")),
            shared_experts: DecoderMlp::new(&at.at("shared_experts"), &shared),
        })
    }
}

/// Which layers have experts, where the first `first_k_dense_replace` have none.
pub(crate) fn first_dense(fields: &Fields, default: u64, decoder: &DecoderConfig) -> Result<Vec<bool>, FieldError> {
    let key = "first_k_dense_replace";
    let given = fields.get(key).map_or(Some(default), serde_json::Value::as_u64);
    let dense = given.ok_or_else(|| FieldError::new(key, "must be a number of layers"))?;
    Ok((0..decoder.num_hidden_layers).map(|layer| layer >= dense).collect())
}

/// `Glm4MoeMoE`, and `DeepseekV3MoE`
struct MoeWithShared {
    module: Module,
    experts: Experts,
    gate: Box<dyn Router>,
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
