//! OLMoE (transformers/models/olmoe/modeling_olmoe.py): OLMo's decoder with Llama's norms, norms over all heads of queries and keys, and
//! experts in the MLP's place.

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec};
use crate::model::nn::{
    AttentionOutput, Experts, ExpertsConfig, ExpertsForm, ExpertsKind, RmsNorm, RouterLoss, Scores, TopKRouter,
    apply_rotary_pos_emb,
};
use crate::tensor::Tensor;

use super::attention::{Projections, SelfAttention, attend};
use super::bounds::{bound_weights, check_divides};
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::layer::{FeedForward, LayerCall};
use super::llama::{DecoderForCausalLm, LlamaDecoderLayer};
use super::{Family, Model, RunOptions, olmo};

pub(crate) const FAMILY: Family = Family { model_types: &["olmoe"], build };

/// What `OlmoeConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    hidden_size: 2048,
    intermediate_size: 2048,
    num_hidden_layers: 16,
    num_attention_heads: 16,
    positions: 4096,
    norm_eps: 1e-5,
    ..olmo::DEFAULTS
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = Config::read(&model.config, at.dtype())?;
    let experts = &config.experts;
    let router_loss = Rc::new(RouterLoss::read(&model.config, experts, 0.01)?);
    let new_layer = |at: &Builder, layer, decoder: &DecoderConfig| {
        let turn = apply_rotary_pos_emb;
        let new_attention = |at: &Builder| -> Box<dyn SelfAttention> {
            Box::new(OlmoeAttention::new(at, decoder, (config.clip_qkv, turn), options))
        };
        let new_block = |at: &Builder| -> Box<dyn FeedForward> {
            Box::new(OlmoeSparseMoeBlock::new(at, &config.experts, &router_loss))
        };
        LlamaDecoderLayer::<_, _, RmsNorm>::with_parts(at, layer, decoder, new_attention, new_block)
    };
    let model = DecoderForCausalLm::with_layers(at, config.decoder.clone(), options, new_layer);
    Ok(Box::new(model.with_router(Rc::clone(&router_loss))))
}

/// What OLMoE's config has beyond a decoder's.
struct Config {
    decoder: DecoderConfig,
    experts: ExpertsConfig,
    clip_qkv: Option<f64>,
}

impl Config {
    fn read(fields: &Fields, dtype: DType) -> Result<Self, FieldError> {
        let decoder = DecoderConfig::read(fields, &DEFAULTS)?;
        let heads = decoder.num_attention_heads;
        check_divides("num_attention_heads", heads, "hidden_size", decoder.hidden_size)?;
        if decoder.head_dim != decoder.hidden_size / heads {
            let problem = format!("is {}: the norm of queries is as wide as hidden_size", decoder.head_dim);
            return Err(FieldError::new("head_dim", problem));
        }
        let num_experts = fields.optional_size("num_experts")?.or(fields.optional_size("num_local_experts")?);
        let experts = ExpertsConfig {
            hidden_size: decoder.hidden_size,
            intermediate_size: decoder.intermediate_size,
            num_experts: num_experts.unwrap_or(64),
            num_experts_per_tok: fields.size("num_experts_per_tok", 8)?,
            activation: decoder.activation,
            scores: Scores { softmax_casts: true, normalized: fields.flag("norm_topk_prob", false)?, cast_back: true },
            form: ExpertsForm::read(fields)?,
            kind: ExpertsKind::Gated,
        };
        let inner = decoder.num_hidden_layers * 3 * experts.num_experts;
        bound_weights(&[("num_experts", [decoder.intermediate_size, decoder.hidden_size], inner)])?;
        experts.check("intermediate_size", dtype)?;
        Ok(Self { decoder, experts, clip_qkv: fields.optional_number("clip_qkv")? })
    }
}

/// Turns queries and keys by cosines and sines.
type Turn = fn(&Tensor, &Tensor, &Tensor, &Tensor) -> (Tensor, Tensor);

/// `OlmoeAttention`, and `MiniMaxM2Attention`
pub(crate) struct OlmoeAttention {
    module: Module,
    projections: Projections,
    q_norm: RmsNorm,
    k_norm: RmsNorm,
    clip_qkv: Option<f64>,
    turn: Turn,
    config: DecoderConfig,
    options: RunOptions,
}

impl OlmoeAttention {
    pub(crate) fn new(
        at: &Builder,
        config: &DecoderConfig,
        (clip_qkv, turn): (Option<f64>, Turn),
        options: &RunOptions,
    ) -> Self {
        let (query_width, key_value_width) = config.widths();
        Self {
            module: at.module(),
            projections: Projections::new(at, config, "o_proj"),
            q_norm: RmsNorm::new(&at.at("q_norm"), query_width, config.norm_eps),
            k_norm: RmsNorm::new(&at.at("k_norm"), key_value_width, config.norm_eps),
            clip_qkv,
            turn,
            config: config.clone(),
            options: options.clone(),
        }
    }
}

impl SelfAttention for OlmoeAttention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let Projections { q_proj, k_proj, v_proj, .. } = &self.projections;
        let query_states = self.q_norm.forward(&q_proj.forward(hidden_states));
        let key_states = self.k_norm.forward(&k_proj.forward(hidden_states));
        let value_states = v_proj.forward(hidden_states);
        let mut states = [query_states, key_states, value_states];
        if let Some(limit) = self.clip_qkv {
            states = states.map(|states| states.clamp_in_place(limit));
        }
        let [mut query_states, mut key_states, mut value_states] =
            states.map(|states| self.projections.split_heads(&states).transpose(1, 2));
        (query_states, key_states) = (self.turn)(&query_states, &key_states, &call.cos, &call.sin);
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let (attn_output, attn_weights) = attend(states, call, self.config.scores(), &self.options);
        (self.projections.merge_heads(attn_output), attn_weights)
    }
}

struct OlmoeSparseMoeBlock {
    module: Module,
    gate: TopKRouter,
    experts: Experts,
}

impl OlmoeSparseMoeBlock {
    fn new(at: &Builder, config: &ExpertsConfig, router_loss: &Rc<RouterLoss>) -> Self {
        Self {
            module: at.module(),
            gate: TopKRouter::new(&at.at("gate"), config, router_loss),
            experts: Experts::new(&at.at("experts"), config),
        }
    }
}

impl FeedForward for OlmoeSparseMoeBlock {
    fn forward(&self, x: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let hidden_states = x.view(&[x.numel() / x.size(-1), x.size(-1)]);
        let routing = self.gate.forward(&hidden_states);
        let final_hidden_states = self.experts.forward(&hidden_states, &routing, call.decodes);
        final_hidden_states.reshape(x.sizes())
    }
}
