//! Gemma 3n's text model (transformers/models/gemma3n/modeling_gemma3n.py): several streams of hidden states of which a layer predicts all
//! and computes one, low-rank branches beside attention, sparse activations, embeddings of its own and shared keys as Gemma 4's.

mod altup;
mod config;
mod mlp;

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::ModelSpec;
use crate::model::nn::{Embedding, LayerMasks, LayerType, Linear, Rope, RotaryEmbedding};
use crate::op::{number_from_host, stack};
use crate::tensor::Tensor;

use super::decoder::FULL_AND_SLIDING;
use super::gemma_causal_lm::{GemmaBase, GemmaForCausalLm};
use super::gemma2::ScaledEmbedding;
use super::gemma4::{
    GemmaPowNorm, PerLayerGate, PerLayerInputs, SharedKeys, SharingAttention, rotary_tables, shared_cache_windows,
    tables_of,
};
use super::layer::{LayerCall, call_region};
use super::{Family, ForwardCall, Model, RunOptions};

use altup::AltUp;
use config::Gemma3nConfig;
use mlp::{LaurelBlock, SparseMlp};

pub(crate) const FAMILY: Family = Family { model_types: &["gemma3n_text"], build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = Gemma3nConfig::read(&model.config)?;
    let (decoder, cap) = (config.decoder.clone(), config.final_logit_softcapping);
    let new_model = |at: &Builder| Box::new(Gemma3nModel::new(at, config, options)) as Box<dyn GemmaBase>;
    Ok(Box::new(GemmaForCausalLm::with_model(at, &decoder, cap, new_model)))
}

struct Gemma3nDecoderLayer {
    module: Module,
    self_attn: SharingAttention,
    mlp: SparseMlp,
    input_layernorm: GemmaPowNorm,
    post_attention_layernorm: GemmaPowNorm,
    pre_feedforward_layernorm: GemmaPowNorm,
    post_feedforward_layernorm: GemmaPowNorm,
    altup: AltUp,
    laurel: LaurelBlock,
    per_layer: PerLayerGate,
}

impl Gemma3nDecoderLayer {
    fn new(at: &Builder, layer: usize, config: &Gemma3nConfig, options: &RunOptions) -> Self {
        let decoder = &config.decoder;
        let norm = |name| GemmaPowNorm::new(&at.at(name), decoder.hidden_size, decoder.norm_eps);
        Self {
            module: at.module(),
            self_attn: SharingAttention::new(&at.at("self_attn"), layer, decoder, config.shape(layer), options),
            mlp: SparseMlp::new(&at.at("mlp"), decoder, config.mlps[layer]),
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            pre_feedforward_layernorm: norm("pre_feedforward_layernorm"),
            post_feedforward_layernorm: norm("post_feedforward_layernorm"),
            altup: AltUp::new(&at.at("altup"), decoder, config.altup, options),
            laurel: LaurelBlock::new(&at.at("laurel"), decoder, config.laurel_rank),
            per_layer: PerLayerGate::new(at, decoder, config.per_layer),
        }
    }

    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, beside: &Beside) -> Tensor {
        let _module = self.module.enter();
        let predictions = self.altup.predict(hidden_states);
        let active_prediction = self.altup.active(&predictions);
        let active_prediction_normed = self.input_layernorm.forward(&active_prediction);
        let laurel_output = self.laurel.forward(&active_prediction_normed);
        let (mut attn, _weights) = self.self_attn.forward(&active_prediction_normed, call, &beside.shared_kv_states);
        attn = self.post_attention_layernorm.forward(&attn);
        let attn_gated = &active_prediction + &attn;
        let attn_laurel = {
            let sum = &attn_gated + &laurel_output;
            sum.div_scalar(2.0_f64.sqrt())
        };
        let attn_norm = self.pre_feedforward_layernorm.forward(&attn_laurel);
        let attn_ffw = self.mlp.forward(&attn_norm);
        let attn_ffw_norm = self.post_feedforward_layernorm.forward(&attn_ffw);
        let attn_ffw_laurel_gated = &attn_laurel + &attn_ffw_norm;
        let corrected_predictions = self.altup.correct(&predictions, &attn_ffw_laurel_gated);
        let mut first_prediction = self.altup.active(&corrected_predictions).clone_contiguous();
        first_prediction = self.altup.scale_corrected_output(first_prediction);
        first_prediction = self.per_layer.forward(first_prediction, &beside.per_layer_input);
        corrected_predictions.add_to_rest(&first_prediction)
    }
}

/// What a layer is given beside what all decoders give theirs.
struct Beside {
    per_layer_input: Tensor,
    shared_kv_states: Rc<SharedKeys>,
}

struct Gemma3nModel {
    module: Module,
    embed_tokens: ScaledEmbedding,
    layers: Vec<Rc<Gemma3nDecoderLayer>>,
    norm: GemmaPowNorm,
    rotary_embs: Vec<(LayerType, RotaryEmbedding)>,
    per_layer: PerLayerInputs,
    altup_projections: Vec<Linear>,
    altup_unembed_projections: Vec<Linear>,
    /// `per_layer_projection_scale` and `per_layer_input_scale`
    per_layer_scales: [Tensor; 2],
    config: Gemma3nConfig,
    options: RunOptions,
}

impl Gemma3nModel {
    fn new(at: &Builder, config: Gemma3nConfig, options: &RunOptions) -> Self {
        let decoder = &config.decoder;
        let hidden = decoder.hidden_size;
        let layer = |layer: u64| {
            Rc::new(Gemma3nDecoderLayer::new(&at.at("layers").element(layer), layer as usize, &config, options))
        };
        let rotary = |(layer_type, rope): &(LayerType, Rope)| {
            (*layer_type, RotaryEmbedding::new(&at.at("rotary_emb"), decoder.head_dim, rope))
        };
        let projections = |name: &str| {
            let project = |stream| Linear::new(&at.at(name).element(stream), hidden, hidden, false);
            (0..config.altup.num_inputs - 1).map(project).collect()
        };
        let scale = |scale: f64| at.buffer(&[], at.default_dtype(), || vec![scale]);
        Self {
            module: at.module(),
            embed_tokens: ScaledEmbedding::of_tokens(at, decoder),
            layers: (0..decoder.num_hidden_layers).map(layer).collect(),
            norm: GemmaPowNorm::new(&at.at("norm"), hidden, decoder.norm_eps),
            rotary_embs: config.rotary.iter().map(rotary).collect(),
            per_layer: PerLayerInputs::new(at, decoder, config.per_layer),
            altup_projections: projections("altup_projections"),
            altup_unembed_projections: projections("altup_unembed_projections"),
            per_layer_scales: [scale((hidden as f64).powf(-0.5)), scale(2.0_f64.powf(-0.5))],
            options: options.clone(),
            config,
        }
    }

    /// The streams that the embeddings begin, all as long as the first.
    fn spread(&self, hidden_states_0: &Tensor) -> Streams {
        let mut streams = Streams::default();
        streams.measure(hidden_states_0);
        streams.streams = vec![hidden_states_0.clone()];
        for projection in &self.altup_projections {
            streams.push(projection.forward(hidden_states_0), hidden_states_0.dtype());
        }
        streams
    }

    /// What the streams of the last layer come to together.
    fn gather(&self, hidden_states: &Tensor, dtype: DType, mut streams: Streams) -> Streams {
        streams.measure(&hidden_states.select(0, 0));
        streams.streams = vec![hidden_states.select(0, 0)];
        for (at, projection) in self.altup_unembed_projections.iter().enumerate() {
            let stream = hidden_states.select(0, at as u64 + 1);
            streams.push(projection.forward(&stream), dtype);
        }
        streams
    }
}

/// Streams while they are made, with what Python's variables hold beside.
#[derive(Default)]
struct Streams {
    target_magnitude: Option<Tensor>,
    streams: Vec<Tensor>,
    projected: Option<Tensor>,
    new_magnitude: Option<Tensor>,
    current: Option<Tensor>,
}

impl Streams {
    /// The others are to be as long as `measured`.
    fn measure(&mut self, measured: &Tensor) {
        self.target_magnitude = Some({
            let mean = magnitude_squared(measured);
            mean.pow_scalar(0.5)
        });
    }

    /// One more, made as long as the first.
    fn push(&mut self, projected: Tensor, dtype: DType) {
        let mut current = self.projected.insert(projected).to(dtype);
        self.current = Some(current.clone());
        let new_magnitude = self.new_magnitude.insert(magnitude_squared(&current));
        *new_magnitude = {
            let epsilon = number_from_host(current.context(), "_to_copy.default", EPSILON, DType::Float32);
            let larger = new_magnitude.at_least(&epsilon);
            drop(epsilon);
            larger.sqrt()
        };
        if let Some(target_magnitude) = &self.target_magnitude {
            current = {
                let product = &current * target_magnitude;
                product.div(new_magnitude)
            };
        }
        self.current = Some(current.clone());
        self.streams.push(current);
    }

    /// `torch.stack` of them, of which there are always some.
    fn stacked(&self, otherwise: &Tensor) -> Tensor {
        stack(&self.streams).unwrap_or_else(|| otherwise.clone())
    }
}

/// `torch.mean(x**2, dim=-1, keepdim=True)`
fn magnitude_squared(x: &Tensor) -> Tensor {
    x.pow_scalar(2.0).mean_last()
}

/// Lengths are at least so much (`epsilon_tensor`).
const EPSILON: f64 = 1e-5;

impl GemmaBase for Gemma3nModel {
    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let inputs_embeds = self.options.require_input_grads(self.embed_tokens.forward(call.input_ids));
        let scales = Some(&self.per_layer_scales);
        let per_layer_inputs = self.per_layer.forward(call.input_ids, &inputs_embeds, scales);
        let position_ids = call.position_ids_for(&inputs_embeds);
        let inputs = call.mask_inputs(self.options.attention, &inputs_embeds, &position_ids);
        let decoder = &self.config.decoder;
        let masks = LayerMasks::create(inputs, FULL_AND_SLIDING, decoder.sliding_window);
        let mut streams = self.spread(&inputs_embeds);
        let mut hidden_states = streams.stacked(&inputs_embeds);
        let tables = rotary_tables(&self.rotary_embs, hidden_states.dtype(), &position_ids);
        let shared_kv_states = Rc::new(SharedKeys::default());
        let decodes = call.decodes();
        for (at, (layer, &layer_type)) in self.layers.iter().zip(decoder.layer_types.iter()).enumerate() {
            let (cos, sin) = tables_of(&tables, layer_type, &position_ids);
            let layer_call = LayerCall {
                cos,
                sin,
                position_ids: position_ids.clone(),
                embedded: None,
                linear_mask: None,
                mask: masks.of(layer_type).cloned(),
                cache: call.cache.clone().filter(|_| !self.options.checkpoints_layers()),
                decodes,
            };
            let per_layer_input = per_layer_inputs.select(2, at as u64);
            let beside = Beside { per_layer_input, shared_kv_states: Rc::clone(&shared_kv_states) };
            let layer = Rc::clone(layer);
            hidden_states = call_region(&hidden_states, &self.options, move |hidden_states| {
                layer.module.call(hidden_states, |hidden_states| layer.forward(hidden_states, &layer_call, &beside))
            });
        }
        // Variables of the first loop have names of their own in the second, but these.
        let _altup_proj = streams.projected.take();
        let streams = self.gather(&hidden_states, inputs_embeds.dtype(), streams);
        hidden_states = streams.stacked(&inputs_embeds);
        hidden_states = hidden_states.mean_without(0);
        self.norm.forward(&hidden_states)
    }

    fn embed_tokens(&self) -> &Embedding {
        self.embed_tokens.embedding()
    }

    fn cache_windows(&self) -> Vec<Option<u64>> {
        shared_cache_windows(&self.config.decoder, self.config.first_shared)
    }
}
