//! Qwen3-Next (transformers/models/qwen3_next/modeling_qwen3_next.py): three of four layers with the gated delta rule in the attention's
//! place, gated attention in the others, and experts beside one that is shared; and what Qwen3.5 has of it.

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{
    AttentionOutput, Experts, ExpertsConfig, ExpertsForm, ExpertsKind, LayerType, Linear, RouterLoss, Scores,
    TopKRouter,
};
use crate::tensor::Tensor;

use super::attention::{SelfAttention, attend, join_heads};
use super::bounds::bound_weights;
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::gated_delta::{GatedDeltaNet, InProjections, LinearConfig};
use super::gated_mlp::DecoderMlp;
use super::gemma2::GemmaRmsNorm;
use super::glm4_moe::apply_rotary_pos_emb;
use super::layer::{FeedForward, LayerCall};
use super::llama::{DecoderForCausalLm, LlamaDecoderLayer};
use super::qwen3_moe::mlp_only_layers;
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["qwen3_next"], build };

/// What `Qwen3NextConfig` has where a config says nothing (transformers 5.17).
pub(crate) const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 151_936,
    hidden_size: 2048,
    intermediate_size: 5632,
    num_hidden_layers: 48,
    num_attention_heads: 16,
    num_key_value_heads: Some(2),
    head_dim: Some(256),
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    positions: 32_768,
    ..DecoderDefaults::LLAMA
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let fields = &model.config;
    let decoder = read_decoder(fields, &DEFAULTS)?;
    let moe = MoeConfig::read(fields, &decoder, at.dtype(), &SparseDefaults::NEXT)?;
    build_hybrid(decoder, LinearConfig::read(fields, InProjections::Joined)?, Some(moe), at, options)
}

/// What all of them read: full attention in every fourth layer, rotary embeddings on a quarter of each head.
pub(crate) fn read_decoder(fields: &Fields, defaults: &DecoderDefaults) -> Result<DecoderConfig, FieldError> {
    let interval = fields.size("full_attention_interval", 4)?;
    let otherwise = |layer: u64| {
        if (layer + 1).is_multiple_of(interval) { LayerType::FullAttention } else { LayerType::LinearAttention }
    };
    DecoderConfig::read(fields, defaults)?.with_linear_layers(fields, "linear_attention", otherwise)?.turning_a_part(
        fields,
        "partial_rotary_factor",
        0.25,
    )
}

/// The model of such a config, with experts where there are any.
pub(crate) fn build_hybrid(
    decoder: DecoderConfig,
    linear: LinearConfig,
    moe: Option<MoeConfig>,
    at: &Builder,
    options: &RunOptions,
) -> Result<Box<dyn Model>, BuildError> {
    linear.check(&decoder)?;
    let new_layer = |at: &Builder, layer: usize, decoder: &DecoderConfig| {
        let new_mlp = |at: &Builder| -> Box<dyn FeedForward> {
            match &moe {
                Some(moe) => moe.new_mlp(at, layer, decoder),
                None => Box::new(DecoderMlp::new(at, decoder)),
            }
        };
        let is_linear = decoder.layer_types.get(layer) == Some(&LayerType::LinearAttention);
        let new_mixer = |at: &Builder| -> Box<dyn SelfAttention> {
            if is_linear {
                Box::new(GatedDeltaNet::new(at, decoder, linear))
            } else {
                Box::new(GatedAttention::new(at, decoder, options))
            }
        };
        let name = if is_linear { "linear_attn" } else { "self_attn" };
        LlamaDecoderLayer::<_, _, GemmaRmsNorm>::with_mixer(at, layer, decoder, (name, new_mixer), new_mlp)
    };
    let model = DecoderForCausalLm::<_, GemmaRmsNorm>::with_norms(at, decoder, options, new_layer);
    Ok(match &moe {
        Some(moe) => Box::new(model.with_router(Rc::clone(&moe.router_loss))),
        None => Box::new(model),
    })
}

/// What config classes of mixtures with one shared expert have where a config says nothing.
pub(crate) struct SparseDefaults {
    pub num_experts: u64,
    pub num_experts_per_tok: u64,
    /// `moe_intermediate_size`
    pub inner: u64,
    /// `shared_expert_intermediate_size`
    pub shared: u64,
    pub norm_topk_prob: bool,
}

impl SparseDefaults {
    /// `Qwen3NextConfig`
    pub(crate) const NEXT: Self =
        Self { num_experts: 512, num_experts_per_tok: 10, inner: 512, shared: 512, norm_topk_prob: true };
}

/// What the config says of experts.
pub(crate) struct MoeConfig {
    experts: ExpertsConfig,
    shared_intermediate_size: u64,
    pub router_loss: Rc<RouterLoss>,
    decoder_sparse_step: u64,
    mlp_only_layers: Vec<u64>,
}

impl MoeConfig {
    pub(crate) fn read(
        fields: &Fields,
        decoder: &DecoderConfig,
        dtype: DType,
        defaults: &SparseDefaults,
    ) -> Result<Self, FieldError> {
        let experts = ExpertsConfig {
            hidden_size: decoder.hidden_size,
            intermediate_size: fields.size("moe_intermediate_size", defaults.inner)?,
            num_experts: fields.size("num_experts", defaults.num_experts)?,
            num_experts_per_tok: fields.size("num_experts_per_tok", defaults.num_experts_per_tok)?,
            activation: decoder.activation,
            scores: Scores {
                softmax_casts: true,
                normalized: fields.flag("norm_topk_prob", defaults.norm_topk_prob)?,
                cast_back: true,
            },
            form: ExpertsForm::read(fields)?,
            kind: ExpertsKind::Gated,
        };
        let shared_intermediate_size = fields.size("shared_expert_intermediate_size", defaults.shared)?;
        let layers = decoder.num_hidden_layers;
        bound_weights(&[
            ("num_experts", [experts.intermediate_size, decoder.hidden_size], layers * 3 * experts.num_experts),
            ("shared_expert_intermediate_size", [shared_intermediate_size, decoder.hidden_size], 3 * layers),
        ])?;
        experts.check("moe_intermediate_size", dtype)?;
        Ok(Self {
            router_loss: Rc::new(RouterLoss::read(fields, &experts, 0.001)?),
            experts,
            shared_intermediate_size,
            decoder_sparse_step: fields.size("decoder_sparse_step", 1)?,
            mlp_only_layers: mlp_only_layers(fields)?,
        })
    }

    fn has_experts(&self, layer: usize) -> bool {
        let layer = layer as u64;
        !self.mlp_only_layers.contains(&layer) && (layer + 1).is_multiple_of(self.decoder_sparse_step)
    }

    /// The MLP of a layer: the experts, or dense.
    pub(crate) fn new_mlp(&self, at: &Builder, layer: usize, decoder: &DecoderConfig) -> Box<dyn FeedForward> {
        if self.has_experts(layer) {
            Box::new(Qwen3NextSparseMoeBlock::new(at, decoder, self))
        } else {
            Box::new(DecoderMlp::new(at, decoder))
        }
    }
}

/// `Qwen3NextAttention`: `q_proj` makes the gate of what attention returns too.
struct GatedAttention {
    module: Module,
    projections: [Linear; 3],
    o_proj: Linear,
    norms: [GemmaRmsNorm; 2],
    config: DecoderConfig,
    options: RunOptions,
}

impl GatedAttention {
    fn new(at: &Builder, config: &DecoderConfig, options: &RunOptions) -> Self {
        let (query_width, key_value_width) = config.widths();
        let widths = [("q_proj", 2 * query_width), ("k_proj", key_value_width), ("v_proj", key_value_width)];
        Self {
            module: at.module(),
            projections: widths
                .map(|(name, width)| Linear::new(&at.at(name), config.hidden_size, width, config.qkv_bias)),
            o_proj: Linear::new(&at.at("o_proj"), query_width, config.hidden_size, config.o_bias),
            norms: ["q_norm", "k_norm"].map(|name| GemmaRmsNorm::new(&at.at(name), config.head_dim, config.norm_eps)),
            config: config.clone(),
            options: options.clone(),
        }
    }
}

impl SelfAttention for GatedAttention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let [q_proj, k_proj, v_proj] = &self.projections;
        let [q_norm, k_norm] = &self.norms;
        let split_heads = |projected: &Tensor, width: u64| {
            projected.view(&[projected.size(0), projected.size(1), projected.size(-1) / width, width])
        };
        let head_dim = self.config.head_dim;
        let [mut query_states, mut gate] = split_heads(&q_proj.forward(hidden_states), 2 * head_dim).split_last();
        gate = gate.reshape(&[gate.size(0), gate.size(1), gate.size(2) * head_dim]);
        query_states = q_norm.forward(&query_states).transpose(1, 2);
        let mut key_states = k_norm.forward(&split_heads(&k_proj.forward(hidden_states), head_dim)).transpose(1, 2);
        let mut value_states = split_heads(&v_proj.forward(hidden_states), head_dim).transpose(1, 2);
        (query_states, key_states) = apply_rotary_pos_emb(&query_states, &key_states, &call.cos, &call.sin);
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let (mut attn_output, attn_weights) = attend(states, call, self.config.scores(), &self.options);
        attn_output = join_heads(&attn_output);
        attn_output = &attn_output * &gate.sigmoid();
        attn_output = self.o_proj.forward(&attn_output);
        (attn_output, attn_weights)
    }
}

/// `Qwen3NextSparseMoeBlock`
struct Qwen3NextSparseMoeBlock {
    module: Module,
    gate: TopKRouter,
    experts: Experts,
    shared_expert: DecoderMlp,
    shared_expert_gate: Linear,
}

impl Qwen3NextSparseMoeBlock {
    fn new(at: &Builder, decoder: &DecoderConfig, moe: &MoeConfig) -> Self {
        let shared = DecoderConfig { intermediate_size: moe.shared_intermediate_size, ..decoder.clone() };
        Self {
            module: at.module(),
            gate: TopKRouter::new(&at.at("gate"), &moe.experts, &moe.router_loss),
            experts: Experts::new(&at.at("experts"), &moe.experts),
            shared_expert: DecoderMlp::new(&at.at("shared_expert"), &shared),
            shared_expert_gate: Linear::new(&at.at("shared_expert_gate"), decoder.hidden_size, 1, false),
        }
    }
}

impl FeedForward for Qwen3NextSparseMoeBlock {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let rows = hidden_states.view(&[hidden_states.numel() / hidden_states.size(-1), hidden_states.size(-1)]);
        let mut shared_expert_output = self.shared_expert.forward(&rows);
        let routing = self.gate.forward(&rows);
        let mut expert_output = self.experts.forward(&rows, &routing, call.decodes);
        shared_expert_output = {
            let gate = self.shared_expert_gate.forward(&rows).sigmoid();
            &gate * &shared_expert_output
        };
        expert_output = &expert_output + &shared_expert_output;
        expert_output.reshape(hidden_states.sizes())
    }
}
