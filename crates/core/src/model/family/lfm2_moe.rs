//! LFM2's mixtures of experts (transformers/models/lfm2_moe/modeling_lfm2_moe.py): LFM2's layers, with experts in the MLP's place but in
//! the first of them.

use crate::building::{BuildError, Builder, Init, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec};
use crate::model::nn::{Experts, ExpertsConfig, ExpertsForm, ExpertsKind, Routing, Scores};
use crate::tensor::Tensor;

use super::bounds::bound_weights;
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::layer::{FeedForward, LayerCall};
use super::lfm2::{self, ConvConfig, new_mlp, read_decoder};
use super::llama::DecoderForCausalLm;
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["lfm2_moe"], build };

/// What `Lfm2MoeConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults { hidden_size: 2048, intermediate_size: 7168, ..lfm2::DEFAULTS };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let fields = &model.config;
    let decoder = read_decoder(fields, &DEFAULTS)?;
    if fields.get("layer_types").is_none() {
        return Err(
            FieldError::new("layer_types", "must say which layers have attention and which a convolution").into()
        );
    }
    let conv = ConvConfig::read(fields, &decoder)?;
    let moe = MoeConfig::read(fields, &decoder, at.dtype())?;
    let dense = match fields.get("num_dense_layers").and_then(serde_json::Value::as_u64) {
        Some(0) => 0,
        _ => fields.size("num_dense_layers", 2)?,
    };
    let new_layer = |at: &Builder, layer: usize, decoder: &DecoderConfig| {
        conv.new_layer(at, layer, decoder, options, |at| {
            if (layer as u64) < dense {
                Box::new(new_mlp(at, decoder))
            } else {
                Box::new(SparseMoeBlock::new(at, &moe))
            }
        })
    };
    Ok(Box::new(DecoderForCausalLm::with_layers(at, decoder, options, new_layer)))
}

/// What the config says of experts.
#[derive(Clone)]
struct MoeConfig {
    experts: ExpertsConfig,
    use_expert_bias: bool,
    routed_scaling_factor: f64,
}

impl MoeConfig {
    fn read(fields: &Fields, decoder: &DecoderConfig, dtype: DType) -> Result<Self, FieldError> {
        let experts = ExpertsConfig {
            hidden_size: decoder.hidden_size,
            intermediate_size: fields.size("moe_intermediate_size", 1792)?,
            num_experts: fields.size("num_experts", 32)?,
            num_experts_per_tok: fields.size("num_experts_per_tok", 4)?,
            activation: decoder.activation,
            scores: Scores { softmax_casts: false, normalized: fields.flag("norm_topk_prob", true)?, cast_back: true },
            form: ExpertsForm::read(fields)?,
            kind: ExpertsKind::Gated,
        };
        let copies = decoder.num_hidden_layers * 3 * experts.num_experts;
        bound_weights(&[("num_experts", [experts.intermediate_size, decoder.hidden_size], copies)])?;
        experts.check("moe_intermediate_size", dtype)?;
        Ok(Self {
            experts,
            use_expert_bias: fields.flag("use_expert_bias", true)?,
            routed_scaling_factor: fields.number("routed_scaling_factor", 1.0)?,
        })
    }
}

/// `Lfm2MoeTopKRouter`: sigmoids, to which a bias is added where experts are chosen.
struct Lfm2MoeTopKRouter {
    module: Module,
    weight: Tensor,
    config: MoeConfig,
}

impl Lfm2MoeTopKRouter {
    fn new(at: &Builder, config: &MoeConfig) -> Self {
        at.lack_adapters(&["gate", "gate.weight"]);
        let sizes = [config.experts.num_experts, config.experts.hidden_size];
        Self { module: at.module(), weight: at.parameter("weight", &sizes, Init::Normal), config: config.clone() }
    }

    fn forward(&self, hidden_states: &Tensor, expert_bias: Option<&Tensor>) -> Routing {
        let _module = self.module.enter();
        let top_k = self.config.experts.num_experts_per_tok;
        let logits = hidden_states.linear(&self.weight, None);
        let mut weights = logits.sigmoid();
        let scores_for_routing = expert_bias.map(|bias| &weights + bias);
        let (best, chosen) = scores_for_routing.as_ref().unwrap_or(&weights).topk(top_k);
        weights = match expert_bias {
            Some(_) => weights.gather(&chosen).to(logits.dtype()),
            None => best.clone(),
        };
        if self.config.experts.scores.normalized {
            weights = weights.div(&weights.sum_last().add_scalar(1e-6));
        }
        weights = weights.mul_scalar(self.config.routed_scaling_factor);
        Routing { logits, weights, chosen }
    }
}

struct SparseMoeBlock {
    module: Module,
    experts: Experts,
    gate: Lfm2MoeTopKRouter,
    expert_bias: Option<Tensor>,
}

impl SparseMoeBlock {
    fn new(at: &Builder, config: &MoeConfig) -> Self {
        let count = config.experts.num_experts;
        Self {
            module: at.module(),
            experts: Experts::new(&at.at("experts"), &config.experts),
            gate: Lfm2MoeTopKRouter::new(&at.at("gate"), config),
            expert_bias: config
                .use_expert_bias
                .then(|| at.saved_buffer("expert_bias", &[count], DType::Float32, Init::Zeros)),
        }
    }
}

impl FeedForward for SparseMoeBlock {
    fn forward(&self, x: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let hidden_states = x.view(&[x.numel() / x.size(-1), x.size(-1)]);
        let routing = self.gate.forward(&hidden_states, self.expert_bias.as_ref());
        let final_hidden_states = self.experts.forward(&hidden_states, &routing, call.decodes);
        final_hidden_states.reshape(x.sizes())
    }
}
