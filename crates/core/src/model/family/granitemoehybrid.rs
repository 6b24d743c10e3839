//! Granite 4 (transformers/models/granitemoehybrid/modeling_granitemoehybrid.py): Granite's multipliers along state spaces and, in a few
//! layers, attention; with an MLP that all tokens share, and experts beside it or none.

use crate::building::{BuildError, Builder, Init, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec};
use crate::model::nn::{
    Activation, Experts, ExpertsConfig, ExpertsForm, ExpertsKind, LayerType, Linear, RmsNorm, Routing, Scores,
};
use crate::tensor::Tensor;

use super::attention::SelfAttention;
use super::bounds::bound_weights;
use super::decoder::DecoderConfig;
use super::granite;
use super::hybrid::{expanded_width, read_mixer};
use super::layer::{DecoderLayer, LayerCall};
use super::llama::{DecoderAttention, DecoderForCausalLm};
use super::mamba2_mixer::{Mamba2Mixer, MixerConfig};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["granitemoehybrid"], build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let fields = &model.config;
    let decoder = read_decoder(fields)?;
    let config = Config::read(fields, &decoder, at.dtype())?;
    let new_layer = |at: &Builder, layer: usize, decoder: &DecoderConfig| -> Box<dyn DecoderLayer> {
        Box::new(GraniteMoeHybridDecoderLayer::new(at, layer, decoder, &config, options))
    };
    Ok(Box::new(DecoderForCausalLm::with_layers(at, decoder, options, new_layer)))
}

/// Layers of attention turn queries and keys where `position_embedding_type` is `rope` alone.
fn read_decoder(fields: &Fields) -> Result<DecoderConfig, FieldError> {
    let mut fields = fields.clone();
    if let Some(names) = fields.0.get_mut("layer_types").and_then(|names| names.as_array_mut()) {
        for name in names {
            match name.as_str() {
                Some("mamba") => *name = "linear_attention".into(),
                Some("attention") => *name = "full_attention".into(),
                _ => {}
            }
        }
    }
    let config = granite::read_config(&fields)?;
    let mut config = config.with_linear_layers(&fields, "linear_attention", |_| LayerType::LinearAttention)?;
    config.masks_read_positions = false;
    config.hands_positions = false;
    if fields.get("position_embedding_type").and_then(|name| name.as_str()) != Some("rope") {
        config.rotary_dim = 0;
        config.turned_layers = Some(vec![false; config.num_hidden_layers as usize].into());
    }
    Ok(config)
}

/// What its layers are made of.
struct Config {
    mixer: MixerConfig,
    shared_intermediate_size: u64,
    /// Experts beside the MLP.
    moe: Option<ExpertsConfig>,
    residual_multiplier: f64,
}

impl Config {
    fn read(fields: &Fields, decoder: &DecoderConfig, dtype: DType) -> Result<Self, FieldError> {
        let mixer = read_mixer(fields, decoder, expanded_width(fields, decoder)?)?;
        mixer.check("mamba_n_heads", decoder.num_hidden_layers)?;
        let shared_intermediate_size = fields.size("shared_intermediate_size", 1024)?;
        let inner = [2 * shared_intermediate_size, decoder.hidden_size];
        bound_weights(&[("shared_intermediate_size", inner, 2 * decoder.num_hidden_layers)])?;
        let none = fields.get("num_local_experts").is_some_and(|count| count.as_u64() == Some(0));
        let moe = if none { None } else { Some(read_experts(fields, decoder, dtype)?) };
        if fields.flag("output_router_logits", false)? {
            let problem = "transformers 5.17 keeps no logits of these routers, and stops where it balances them";
            return Err(FieldError::new("output_router_logits", problem));
        }
        let residual_multiplier = fields.number("residual_multiplier", 1.0)?;
        Ok(Self { mixer, shared_intermediate_size, moe, residual_multiplier })
    }
}

fn read_experts(fields: &Fields, decoder: &DecoderConfig, dtype: DType) -> Result<ExpertsConfig, FieldError> {
    let experts = ExpertsConfig {
        hidden_size: decoder.hidden_size,
        intermediate_size: decoder.intermediate_size,
        num_experts: fields.size("num_local_experts", 8)?,
        num_experts_per_tok: fields.size("num_experts_per_tok", 2)?,
        activation: decoder.activation,
        scores: Scores { softmax_casts: false, normalized: true, cast_back: true },
        form: ExpertsForm::read(fields)?,
        kind: ExpertsKind::Gated,
    };
    let copies = decoder.num_hidden_layers * 3 * experts.num_experts;
    bound_weights(&[("num_local_experts", [experts.intermediate_size, decoder.hidden_size], copies)])?;
    experts.check("intermediate_size", dtype)?;
    Ok(experts)
}

/// `GraniteMoeHybridMoE`
struct MoeBlock {
    module: Module,
    router: TopKRouter,
    experts: Experts,
}

impl MoeBlock {
    fn new(at: &Builder, experts: &ExpertsConfig) -> Self {
        let router_at = at.at("router");
        router_at.lack_adapters(&["router", "router.weight"]);
        Self {
            module: at.module(),
            router: TopKRouter {
                module: router_at.module(),
                weight: router_at.parameter("weight", &[experts.num_experts, experts.hidden_size], Init::Normal),
                top_k: experts.num_experts_per_tok,
            },
            experts: Experts::new(&at.at("experts"), experts),
        }
    }

    fn forward(&self, layer_input: &Tensor, decodes: bool) -> Tensor {
        let _module = self.module.enter();
        let hidden_states = layer_input.reshape(&[layer_input.numel() / layer_input.size(-1), layer_input.size(-1)]);
        let routing = self.router.forward(&hidden_states);
        let layer_output = self.experts.forward(&hidden_states, &routing, decodes);
        layer_output.view(layer_input.sizes())
    }
}

/// `GraniteMoeHybridTopKRouter`: a softmax of the chosen experts' logits alone.
struct TopKRouter {
    module: Module,
    weight: Tensor,
    top_k: u64,
}

impl TopKRouter {
    fn forward(&self, hidden_states: &Tensor) -> Routing {
        let _module = self.module.enter();
        let logits = hidden_states.linear(&self.weight, None).float();
        let (top_k_logits, chosen) = logits.topk(self.top_k);
        let weights = top_k_logits.softmax(None).to(hidden_states.dtype());
        Routing { logits, weights, chosen }
    }
}

/// `GraniteMoeHybridMLP`
struct SharedMlp {
    module: Module,
    activation: Activation,
    input_linear: Linear,
    output_linear: Linear,
}

impl SharedMlp {
    fn new(at: &Builder, decoder: &DecoderConfig, inner: u64) -> Self {
        Self {
            module: at.module(),
            activation: decoder.activation,
            input_linear: Linear::new(&at.at("input_linear"), decoder.hidden_size, 2 * inner, false),
            output_linear: Linear::new(&at.at("output_linear"), inner, decoder.hidden_size, false),
        }
    }

    fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let chunked_hidden_states = self.input_linear.forward(hidden_states).split_last::<2>();
        let hidden_states = {
            let activated = self.activation.forward(&chunked_hidden_states[0]);
            &activated * &chunked_hidden_states[1]
        };
        self.output_linear.forward(&hidden_states)
    }
}

struct GraniteMoeHybridDecoderLayer {
    module: Module,
    layer: usize,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
    block_sparse_moe: Option<MoeBlock>,
    shared_mlp: SharedMlp,
    mixer: Box<dyn SelfAttention>,
    residual_multiplier: f64,
}

impl GraniteMoeHybridDecoderLayer {
    fn new(at: &Builder, layer: usize, decoder: &DecoderConfig, config: &Config, options: &RunOptions) -> Self {
        let norm = |name| RmsNorm::new(&at.at(name), decoder.hidden_size, decoder.norm_eps);
        let attends = decoder.layer_types.get(layer) == Some(&LayerType::FullAttention);
        let new_mixer = || -> Box<dyn SelfAttention> {
            if attends {
                Box::new(DecoderAttention::new(&at.at("self_attn"), decoder, options))
            } else {
                Box::new(Mamba2Mixer::new(&at.at("mamba"), &config.mixer))
            }
        };
        Self {
            module: at.module(),
            layer,
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            block_sparse_moe: config.moe.as_ref().map(|moe| MoeBlock::new(&at.at("block_sparse_moe"), moe)),
            shared_mlp: SharedMlp::new(&at.at("shared_mlp"), decoder, config.shared_intermediate_size),
            mixer: new_mixer(),
            residual_multiplier: config.residual_multiplier,
        }
    }
}

impl DecoderLayer for GraniteMoeHybridDecoderLayer {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let scaled = |residual: &Tensor, hidden_states: &Tensor| {
            let product = hidden_states.mul_scalar(self.residual_multiplier);
            residual + &product
        };
        let mut hidden_states = self.input_layernorm.forward(residual);
        hidden_states = self.mixer.forward(&hidden_states, call, self.layer).0;
        hidden_states = scaled(residual, &hidden_states);
        let residual = hidden_states.clone();
        hidden_states = self.post_attention_layernorm.forward(&hidden_states);
        let moe_hidden_states = self.block_sparse_moe.as_ref().map(|moe| moe.forward(&hidden_states, call.decodes));
        let shared = self.shared_mlp.forward(&hidden_states);
        hidden_states = match &moe_hidden_states {
            Some(moe_hidden_states) => moe_hidden_states + &shared,
            None => shared,
        };
        scaled(&residual, &hidden_states)
    }
}
