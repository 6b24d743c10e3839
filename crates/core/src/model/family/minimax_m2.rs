//! MiniMax-M2 (transformers/models/minimax_m2/modeling_minimax_m2.py): norms over all heads of queries and keys, rotary embeddings on a
//! part of each head, and in every layer experts that sigmoids and a bias choose.

use std::rc::Rc;

use crate::building::{BuildError, Builder, Init, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{Experts, ExpertsConfig, RmsNorm, RouterLoss, Routing};
use crate::tensor::Tensor;

use super::attention::SelfAttention;
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::glm4_moe::apply_rotary_pos_emb;
use super::layer::{FeedForward, LayerCall};
use super::llama::{DecoderForCausalLm, LlamaDecoderLayer};
use super::mixtral::read_experts;
use super::olmoe::OlmoeAttention;
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["minimax_m2"], build };

/// What `MiniMaxM2Config` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 200_064,
    hidden_size: 3072,
    intermediate_size: 1536,
    num_hidden_layers: 62,
    num_attention_heads: 48,
    num_key_value_heads: Some(8),
    head_dim: Some(128),
    reads_attention_bias: false,
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    positions: 196_608,
    rope_theta: 5_000_000.0,
    ..DecoderDefaults::LLAMA
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let (decoder, experts) = read_config(&model.config, at.dtype())?;
    let router_loss = Rc::new(RouterLoss::read(&model.config, &experts, 0.001)?);
    let new_layer = |at: &Builder, layer, decoder: &DecoderConfig| {
        let new_attention = |at: &Builder| -> Box<dyn SelfAttention> {
            Box::new(OlmoeAttention::new(at, decoder, (None, apply_rotary_pos_emb), options))
        };
        let new_block = |at: &Builder| -> Box<dyn FeedForward> {
            Box::new(MiniMaxM2SparseMoeBlock::new(at, &experts, &router_loss))
        };
        LlamaDecoderLayer::<_, _, RmsNorm>::with_parts(at, layer, decoder, new_attention, new_block)
    };
    let model = DecoderForCausalLm::with_layers(at, decoder.clone(), options, new_layer);
    Ok(Box::new(model.with_router(Rc::clone(&router_loss))))
}

fn read_config(fields: &Fields, dtype: DType) -> Result<(DecoderConfig, ExpertsConfig), FieldError> {
    let decoder = DecoderConfig::read(fields, &DEFAULTS)?.turning_any_part(fields, "partial_rotary_factor", 1.0)?;
    let experts = read_experts(fields, &decoder, [256, 8])?;
    experts.check("intermediate_size", dtype)?;
    Ok((decoder, experts))
}

struct MiniMaxM2SparseMoeBlock {
    module: Module,
    gate: MiniMaxM2TopKRouter,
    experts: Experts,
    e_score_correction_bias: Tensor,
}

impl MiniMaxM2SparseMoeBlock {
    fn new(at: &Builder, config: &ExpertsConfig, router_loss: &Rc<RouterLoss>) -> Self {
        let experts = config.num_experts;
        Self {
            module: at.module(),
            gate: MiniMaxM2TopKRouter::new(&at.at("gate"), config, router_loss),
            experts: Experts::of_pieces(&at.at("experts"), config, ["w1", "w2"]),
            e_score_correction_bias: at.saved_buffer("e_score_correction_bias", &[experts], at.dtype(), Init::Zeros),
        }
    }
}

impl FeedForward for MiniMaxM2SparseMoeBlock {
    fn forward(&self, x: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let sizes = x.sizes();
        let mut hidden_states = x.view(&[x.numel() / x.size(-1), x.size(-1)]);
        let routing = self.gate.forward(&hidden_states, &self.e_score_correction_bias);
        hidden_states = self.experts.forward(&hidden_states, &routing, call.decodes);
        hidden_states.reshape(sizes)
    }
}

struct MiniMaxM2TopKRouter {
    module: Module,
    weight: Tensor,
    top_k: u64,
    router_loss: Rc<RouterLoss>,
}

impl MiniMaxM2TopKRouter {
    fn new(at: &Builder, config: &ExpertsConfig, router_loss: &Rc<RouterLoss>) -> Self {
        at.lack_adapters(&["gate", "gate.weight"]);
        let weight = at.parameter("weight", &[config.num_experts, config.hidden_size], Init::Normal);
        let (top_k, router_loss) = (config.num_experts_per_tok, Rc::clone(router_loss));
        Self { module: at.module(), weight, top_k, router_loss }
    }

    fn forward(&self, hidden_states: &Tensor, e_score_correction_bias: &Tensor) -> Routing {
        let _module = self.module.enter();
        let logits = hidden_states.to(self.weight.dtype()).linear(&self.weight, None);
        let routing_weights = {
            let logits = logits.to(DType::Float32);
            logits.sigmoid()
        };
        let scores_for_choice = &routing_weights + e_score_correction_bias;
        // Python's `_` holds the best scores to the end.
        let (_best, chosen) = scores_for_choice.topk(self.top_k);
        let mut weights = routing_weights.gather(&chosen);
        weights = weights.div_in_place(&weights.sum_last());
        self.router_loss.note(&logits);
        Routing { logits, weights, chosen }
    }
}
