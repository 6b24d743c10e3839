//! Mixtral (transformers/models/mixtral/modeling_mixtral.py): Mistral's decoder with experts in the MLP's place.

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{
    Experts, ExpertsConfig, ExpertsForm, ExpertsKind, LayerType, RmsNorm, RouterLoss, Scores, TopKRouter,
};
use crate::tensor::Tensor;

use super::bounds::bound_weights;
use super::decoder::{DecoderConfig, DecoderDefaults, SLIDING};
use super::expert_loop::ExpertLoop;
use super::layer::{FeedForward, LayerCall};
use super::llama::{DecoderAttention, DecoderForCausalLm, LlamaDecoderLayer};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["mixtral"], build };

/// What `MixtralConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    intermediate_size: 14336,
    num_key_value_heads: Some(8),
    reads_attention_bias: false,
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    positions: 131_072,
    norm_eps: 1e-5,
    rope_theta: 1_000_000.0,
    ..DecoderDefaults::LLAMA
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let loops = at.context().transformers().loops_over_experts();
    let config = Config::read(&model.config, at.dtype(), loops)?;
    let experts = &config.experts;
    let router_loss = Rc::new(RouterLoss::read(&model.config, experts, 0.001)?);
    let new_block = |at: &Builder| -> Box<dyn FeedForward> {
        if loops {
            Box::new(ExpertLoop::new(at, &config.experts, &router_loss, ["w1", "w2", "w3"]))
        } else {
            Box::new(MixtralSparseMoeBlock::new(at, &config.experts, &router_loss))
        }
    };
    let names =
        ["self_attn", if loops { "block_sparse_moe" } else { "mlp" }, "input_layernorm", "post_attention_layernorm"];
    let new_layer = |at: &Builder, layer, decoder: &DecoderConfig| {
        let new_attention = |at: &Builder| DecoderAttention::new(at, decoder, options);
        LlamaDecoderLayer::<_, _, RmsNorm>::named(at, layer, decoder, names, (new_attention, new_block))
    };
    let model = DecoderForCausalLm::with_layers(at, config.decoder.clone(), options, new_layer);
    Ok(Box::new(model.with_router(Rc::clone(&router_loss))))
}

/// What Mixtral's config has beyond a decoder's.
struct Config {
    decoder: DecoderConfig,
    experts: ExpertsConfig,
}

impl Config {
    fn read(fields: &Fields, dtype: DType, loops: bool) -> Result<Self, FieldError> {
        let mut decoder = DecoderConfig::read(fields, &DEFAULTS)?;
        if let Some(window) = fields.optional_size("sliding_window")? {
            decoder.sliding_window = window;
            decoder.mask_types = SLIDING;
            decoder.layer_types = vec![LayerType::SlidingAttention; decoder.num_hidden_layers as usize].into();
        }
        let mut experts = read_experts(fields, &decoder, [8, 2])?;
        if loops {
            experts.form = ExpertsForm::Loop;
        }
        experts.check("intermediate_size", dtype)?;
        Ok(Self { decoder, experts })
    }
}

/// Experts as Mixtral's config has them, which are so many, of which so many are chosen, where it does not say.
pub(super) fn read_experts(
    fields: &Fields,
    decoder: &DecoderConfig,
    [count, per_token]: [u64; 2],
) -> Result<ExpertsConfig, FieldError> {
    if fields.number("router_jitter_noise", 0.0)? > 0.0 {
        return Err(FieldError::unsimulated("router_jitter_noise", "noise on the router's input is not simulated"));
    }
    let num_experts = fields.optional_size("num_local_experts")?.or(fields.optional_size("num_experts")?);
    let experts = ExpertsConfig {
        hidden_size: decoder.hidden_size,
        intermediate_size: decoder.intermediate_size,
        num_experts: num_experts.unwrap_or(count),
        num_experts_per_tok: fields.size("num_experts_per_tok", per_token)?,
        activation: decoder.activation,
        scores: Scores { softmax_casts: false, normalized: true, cast_back: false },
        form: ExpertsForm::read(fields)?,
        kind: ExpertsKind::Gated,
    };
    let inner = decoder.num_hidden_layers * 3 * experts.num_experts;
    bound_weights(&[("num_local_experts", [decoder.intermediate_size, decoder.hidden_size], inner)])?;
    Ok(experts)
}

struct MixtralSparseMoeBlock {
    module: Module,
    gate: TopKRouter,
    experts: Experts,
}

impl MixtralSparseMoeBlock {
    fn new(at: &Builder, config: &ExpertsConfig, router_loss: &Rc<RouterLoss>) -> Self {
        Self {
            module: at.module(),
            gate: TopKRouter::new(&at.at("gate"), config, router_loss),
            experts: Experts::of_pieces(&at.at("experts"), config, ["w1", "w2"]),
        }
    }
}

impl FeedForward for MixtralSparseMoeBlock {
    fn forward(&self, x: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let sizes = x.sizes();
        let mut hidden_states = x.view(&[x.numel() / x.size(-1), x.size(-1)]);
        let routing = self.gate.forward(&hidden_states);
        hidden_states = self.experts.forward(&hidden_states, &routing, call.decodes);
        hidden_states.reshape(sizes)
    }
}
