//! Qwen3's mixtures of experts (transformers/models/qwen3_moe/modeling_qwen3_moe.py): Qwen3's decoder, of which some layers or all have
//! experts in the MLP's place; and the text model of Qwen3-VL's (qwen3_vl_moe/modeling_qwen3_vl_moe.py), with positions in time, height
//! and width.

use std::rc::Rc;

use serde_json::Value;

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{
    Experts, ExpertsConfig, ExpertsForm, ExpertsKind, LayerType, RotaryTables, RouterLoss, Scores, TopKRouter,
};
use crate::tensor::Tensor;

use super::bounds::bound_weights;
use super::decoder::{DecoderConfig, DecoderDefaults, SLIDING};
use super::gated_mlp::DecoderMlp;
use super::layer::{FeedForward, LayerCall};
use super::llama::{DecoderForCausalLm, LlamaDecoderLayer};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["qwen3_moe", VISION_TEXT], build };

const VISION_TEXT: &str = "qwen3_vl_moe_text";

/// What `Qwen3MoeConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 151_936,
    hidden_size: 2048,
    intermediate_size: 6144,
    num_hidden_layers: 24,
    num_key_value_heads: Some(4),
    reads_mlp_bias: false,
    qk_norm: true,
    file: ModelingFile::Later,
    positions: 32_768,
    ..DecoderDefaults::LLAMA
};

/// What `Qwen3VLMoeTextConfig` has.
const VISION_DEFAULTS: DecoderDefaults = DecoderDefaults {
    intermediate_size: 5632,
    num_attention_heads: 16,
    num_key_value_heads: Some(16),
    tie_word_embeddings: true,
    positions: 128_000,
    rope_theta: 500_000.0,
    ..DEFAULTS
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = if model.model_type == VISION_TEXT {
        Config::read_vision_text(&model.config, at.dtype())?
    } else {
        Config::read(&model.config, at.dtype())?
    };
    let mut config = config;
    // Behind its tower positions are in time, height and width alone.
    config.decoder.masks_read_positions &= options.tower.is_none();
    let experts = &config.experts;
    let router_loss = Rc::new(RouterLoss::read(&model.config, experts, 0.001)?);
    let new_layer = |at: &Builder, layer, decoder: &DecoderConfig| {
        LlamaDecoderLayer::new(at, layer, decoder, options, |at| {
            let mlp: Box<dyn FeedForward> = if config.has_experts(layer) {
                Box::new(Qwen3MoeSparseMoeBlock::new(at, &config.experts, &router_loss))
            } else {
                Box::new(DecoderMlp::new(at, decoder))
            };
            mlp
        })
    };
    let model = DecoderForCausalLm::with_layers(at, config.decoder.clone(), options, new_layer);
    Ok(Box::new(model.with_router(Rc::clone(&router_loss))))
}

/// What the config has beyond a decoder's.
struct Config {
    decoder: DecoderConfig,
    experts: ExpertsConfig,
    decoder_sparse_step: u64,
    mlp_only_layers: Vec<u64>,
}

impl Config {
    fn read(fields: &Fields, dtype: DType) -> Result<Self, FieldError> {
        let mut decoder = DecoderConfig::read(fields, &DEFAULTS)?;
        if fields.flag("use_sliding_window", false)? {
            decoder.sliding_window = fields.size("sliding_window", 4096)?;
            decoder.mask_types = SLIDING;
            decoder.layer_types = vec![LayerType::SlidingAttention; decoder.num_hidden_layers as usize].into();
        }
        let normalized = fields.flag("norm_topk_prob", false)?;
        Self::of_decoder(decoder, fields, dtype, (normalized, [768, 128, 8]))
    }

    /// Its weights of experts add up to 1, and it has no window, whatever the config says.
    fn read_vision_text(fields: &Fields, dtype: DType) -> Result<Self, FieldError> {
        let mut decoder = DecoderConfig::read(fields, &VISION_DEFAULTS)?;
        decoder.tables = RotaryTables::OfGrids;
        Self::of_decoder(decoder, fields, dtype, (true, [1408, 60, 4]))
    }

    /// With such weights, and so many features of an expert, experts, and experts of a token where the config says nothing.
    fn of_decoder(
        decoder: DecoderConfig,
        fields: &Fields,
        dtype: DType,
        (normalized, [inner, experts, per_token]): (bool, [u64; 3]),
    ) -> Result<Self, FieldError> {
        let num_experts = fields.optional_size("num_experts")?.or(fields.optional_size("num_local_experts")?);
        let experts = ExpertsConfig {
            hidden_size: decoder.hidden_size,
            intermediate_size: fields.size("moe_intermediate_size", inner)?,
            num_experts: num_experts.unwrap_or(experts),
            num_experts_per_tok: fields.size("num_experts_per_tok", per_token)?,
            activation: decoder.activation,
            scores: Scores { softmax_casts: true, normalized, cast_back: true },
            form: ExpertsForm::read(fields)?,
            kind: ExpertsKind::Gated,
        };
        let inner = decoder.num_hidden_layers * 3 * experts.num_experts;
        bound_weights(&[("num_experts", [experts.intermediate_size, decoder.hidden_size], inner)])?;
        experts.check("moe_intermediate_size", dtype)?;
        let decoder_sparse_step = fields.size("decoder_sparse_step", 1)?;
        Ok(Self { decoder, experts, decoder_sparse_step, mlp_only_layers: mlp_only_layers(fields)? })
    }

    fn has_experts(&self, layer: usize) -> bool {
        let layer = layer as u64;
        !self.mlp_only_layers.contains(&layer) && (layer + 1).is_multiple_of(self.decoder_sparse_step)
    }
}

pub(crate) fn mlp_only_layers(fields: &Fields) -> Result<Vec<u64>, FieldError> {
    let key = "mlp_only_layers";
    let Some(listed) = fields.get(key) else { return Ok(Vec::new()) };
    let numbers: Option<Vec<u64>> = listed.as_array().and_then(|all| all.iter().map(Value::as_u64).collect());
    numbers.ok_or_else(|| FieldError::new(key, "must be a list of layers, counted from 0"))
}

struct Qwen3MoeSparseMoeBlock {
    module: Module,
    experts: Experts,
    gate: TopKRouter,
}

impl Qwen3MoeSparseMoeBlock {
    fn new(at: &Builder, config: &ExpertsConfig, router_loss: &Rc<RouterLoss>) -> Self {
        Self {
            module: at.module(),
            experts: Experts::new(&at.at("experts"), config),
            gate: TopKRouter::new(&at.at("gate"), config, router_loss),
        }
    }
}

impl FeedForward for Qwen3MoeSparseMoeBlock {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let rows = [hidden_states.numel() / hidden_states.size(-1), hidden_states.size(-1)];
        let hidden_states_reshaped = hidden_states.view(&rows);
        let routing = self.gate.forward(&hidden_states_reshaped);
        let final_hidden_states = self.experts.forward(&hidden_states_reshaped, &routing, call.decodes);
        final_hidden_states.reshape(hidden_states.sizes())
    }
}
