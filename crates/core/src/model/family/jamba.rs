//! Jamba (transformers/models/jamba/modeling_jamba.py): blocks of Mamba with norms of what is selected and, in a few layers, attention
//! without positions; in some layers experts stand in the MLP's place.

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{
    Experts, ExpertsConfig, ExpertsForm, ExpertsKind, LayerType, Linear, RmsNorm, RouterLoss, Routing, Scores,
};
use crate::tensor::Tensor;

use super::attention::SelfAttention;
use super::bounds::bound_weights;
use super::decoder::{DecoderConfig, DecoderDefaults, FULL_AND_LINEAR};
use super::gated_mlp::DecoderMlp;
use super::layer::{DecoderLayer, FeedForward, LayerCall};
use super::llama::{DecoderAttention, DecoderForCausalLm, LlamaDecoderLayer};
use super::mamba::{MambaMixer, MixerConfig, MixerNorms};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["jamba"], build };

/// What `JambaConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 65536,
    hidden_size: 4096,
    intermediate_size: 14336,
    num_hidden_layers: 32,
    num_attention_heads: 32,
    num_key_value_heads: Some(8),
    reads_attention_bias: false,
    reads_mlp_bias: false,
    pad_token_id: Some(0),
    file: ModelingFile::Later,
    positions: 262_144,
    ..DecoderDefaults::LLAMA
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = Config::read(&model.config, at.dtype())?;
    let router_loss = Rc::new(RouterLoss::read(&model.config, &config.experts, 0.001)?);
    let new_layer = |at: &Builder, layer: usize, decoder: &DecoderConfig| -> Box<dyn DecoderLayer> {
        let attends = decoder.layer_types.get(layer) == Some(&LayerType::FullAttention);
        let new_mixer = |at: &Builder| -> Box<dyn SelfAttention> {
            if attends {
                Box::new(DecoderAttention::new(at, decoder, options))
            } else {
                Box::new(MambaMixer::new(at, &config.mixer))
            }
        };
        let new_block = |at: &Builder| -> Box<dyn FeedForward> {
            if config.has_experts(layer as u64) {
                Box::new(JambaSparseMoeBlock::new(at, &config.experts, &router_loss))
            } else {
                Box::new(DecoderMlp::new(at, decoder))
            }
        };
        let names =
            [if attends { "self_attn" } else { "mamba" }, "feed_forward", "input_layernorm", "pre_ff_layernorm"];
        Box::new(LlamaDecoderLayer::<_, _, RmsNorm>::named(at, layer, decoder, names, (new_mixer, new_block)))
    };
    let model = DecoderForCausalLm::with_layers(at, config.decoder.clone(), options, new_layer);
    Ok(Box::new(model.with_router(Rc::clone(&router_loss))))
}

/// One layer of so many, counted from an offset.
#[derive(Clone, Copy)]
struct Every {
    period: u64,
    offset: u64,
}

impl Every {
    fn read(fields: &Fields, [period, offset]: [(&'static str, u64); 2]) -> Result<Self, FieldError> {
        let every = Self {
            period: fields.size(period.0, period.1)?,
            offset: match fields.get(offset.0).and_then(serde_json::Value::as_u64) {
                Some(0) => 0,
                _ => fields.size(offset.0, offset.1)?,
            },
        };
        if every.offset >= every.period {
            return Err(FieldError::new(offset.0, format!("must be smaller than {} = {}", period.0, every.period)));
        }
        Ok(every)
    }

    const fn holds(self, layer: u64) -> bool {
        layer % self.period == self.offset
    }
}

struct Config {
    decoder: DecoderConfig,
    mixer: MixerConfig,
    experts: ExpertsConfig,
    expert_layers: Every,
}

impl Config {
    fn read(fields: &Fields, dtype: DType) -> Result<Self, FieldError> {
        let mut decoder = DecoderConfig::read(fields, &DEFAULTS)?;
        let attends = Every::read(fields, [("attn_layer_period", 8), ("attn_layer_offset", 4)])?;
        let layer_type =
            |layer| if attends.holds(layer) { LayerType::FullAttention } else { LayerType::LinearAttention };
        let layers = decoder.num_hidden_layers;
        decoder.layer_types = (0..layers).map(layer_type).collect();
        decoder.mask_types = FULL_AND_LINEAR;
        decoder.rotary_dim = 0;
        decoder.turned_layers = Some(vec![false; layers as usize].into());
        decoder.last_norm = ("final_layernorm", false);
        let mixer = read_mixer(fields, &decoder)?;
        let experts = read_experts(fields, &decoder)?;
        let expert_layers = Every::read(fields, [("expert_layer_period", 2), ("expert_layer_offset", 1)])?;
        let config = Self { decoder, mixer, experts, expert_layers };
        if (0..layers).any(|layer| config.has_experts(layer)) {
            config.experts.check("intermediate_size", dtype)?;
        }
        Ok(config)
    }

    /// Of one expert a layer has the MLP.
    const fn has_experts(&self, layer: u64) -> bool {
        self.experts.num_experts > 1 && self.expert_layers.holds(layer)
    }
}

/// Mamba's mixer under Jamba's names.
fn read_mixer(fields: &Fields, decoder: &DecoderConfig) -> Result<MixerConfig, FieldError> {
    if fields.flag("use_mambapy", false)? {
        return Err(FieldError::unsimulated("use_mambapy", "mambapy's scan is not simulated"));
    }
    let rank = "mamba_dt_rank";
    let rank_is_auto = fields.get(rank).is_none_or(serde_json::Value::is_string);
    let mixer = MixerConfig {
        hidden_size: decoder.hidden_size,
        intermediate_size: fields.size("mamba_expand", 2)?.saturating_mul(decoder.hidden_size),
        state_size: fields.size("mamba_d_state", 16)?,
        conv_kernel: fields.size("mamba_d_conv", 4)?,
        time_step_rank: if rank_is_auto { decoder.hidden_size.div_ceil(16) } else { fields.size(rank, 1)? },
        conv_bias: fields.flag("mamba_conv_bias", true)?,
        bias: fields.flag("mamba_proj_bias", false)?,
        activation: decoder.activation,
        norms: MixerNorms::Learned(decoder.norm_eps),
        layers: decoder.num_hidden_layers,
    };
    mixer.check()?;
    Ok(mixer)
}

fn read_experts(fields: &Fields, decoder: &DecoderConfig) -> Result<ExpertsConfig, FieldError> {
    let num_experts = fields.optional_size("num_experts")?.or(fields.optional_size("num_local_experts")?);
    let experts = ExpertsConfig {
        hidden_size: decoder.hidden_size,
        intermediate_size: decoder.intermediate_size,
        num_experts: num_experts.unwrap_or(16),
        num_experts_per_tok: fields.size("num_experts_per_tok", 2)?,
        activation: decoder.activation,
        scores: Scores { softmax_casts: true, normalized: false, cast_back: true },
        form: ExpertsForm::read(fields)?,
        kind: ExpertsKind::Gated,
    };
    let inner = decoder.num_hidden_layers * 3 * experts.num_experts;
    bound_weights(&[("num_experts", [decoder.intermediate_size, decoder.hidden_size], inner)])?;
    Ok(experts)
}

struct JambaSparseMoeBlock {
    module: Module,
    router: Linear,
    experts: Experts,
    top_k: u64,
    router_loss: Rc<RouterLoss>,
}

impl JambaSparseMoeBlock {
    fn new(at: &Builder, config: &ExpertsConfig, router_loss: &Rc<RouterLoss>) -> Self {
        Self {
            module: at.module(),
            router: Linear::new(&at.at("router"), config.hidden_size, config.num_experts, false),
            experts: Experts::of_stacks(&at.at("experts"), config, Some(["gate_proj", "down_proj"])),
            top_k: config.num_experts_per_tok,
            router_loss: Rc::clone(router_loss),
        }
    }

    fn route(&self, hidden_states: &Tensor, logits: Tensor) -> Routing {
        let routing_weights = logits.softmax(Some(DType::Float32));
        let (top_k_weights, chosen) = routing_weights.topk(self.top_k);
        Routing { logits, weights: top_k_weights.to(hidden_states.dtype()), chosen }
    }
}

impl FeedForward for JambaSparseMoeBlock {
    fn forward(&self, x: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = x.view(&[x.numel() / x.size(-1), x.size(-1)]);
        let router_logits = self.router.forward(&hidden_states);
        self.router_loss.note(&router_logits);
        let routing = self.route(&hidden_states, router_logits);
        hidden_states = self.experts.forward(&hidden_states, &routing, call.decodes);
        hidden_states.reshape(x.sizes())
    }
}
