//! Gemma 4's text models (transformers/models/gemma4/modeling_gemma4.py and gemma4_unified/modeling_gemma4_unified.py): heads that are wider
//! in layers of full attention, keys and values that later layers share, embeddings of their own for each layer, experts beside the MLP.

mod attention;
mod config;
mod experts;
mod norm;
mod per_layer;

use std::rc::Rc;

use crate::building::{BuildError, Builder, Init, Module};
use crate::dtype::DType;
use crate::job::ModelSpec;
use crate::model::nn::{Embedding, LayerMasks, LayerType, Rope, RotaryEmbedding};
use crate::tensor::Tensor;

use super::decoder::{DecoderConfig, FULL_AND_SLIDING};
use super::gated_mlp::DecoderMlp;
use super::gemma_causal_lm::{GemmaBase, GemmaForCausalLm};
use super::gemma2::ScaledEmbedding;
use super::layer::{LayerCall, call_region};
use super::{Family, ForwardCall, Model, RunOptions};

pub(crate) use attention::{AttentionShape, KeyRole, SharedKeys, SharingAttention};
use config::Gemma4Config;
pub(crate) use config::{check_sharing, optional_size};
use experts::ExpertsBlock;
pub(crate) use norm::GemmaPowNorm;
pub(crate) use per_layer::{PerLayerGate, PerLayerInputs, PerLayerSizes};

pub(crate) const FAMILY: Family = Family { model_types: &["gemma4_text", config::UNIFIED], build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = Gemma4Config::read(&model.model_type, &model.config, at.dtype())?;
    let (decoder, cap) = (config.decoder.clone(), config.final_logit_softcapping);
    let new_model = |at: &Builder| Box::new(Gemma4Model::new(at, config, options)) as Box<dyn GemmaBase>;
    Ok(Box::new(GemmaForCausalLm::with_model(at, &decoder, cap, new_model)))
}

struct Gemma4DecoderLayer {
    module: Module,
    self_attn: SharingAttention,
    mlp: DecoderMlp,
    input_layernorm: GemmaPowNorm,
    post_attention_layernorm: GemmaPowNorm,
    pre_feedforward_layernorm: GemmaPowNorm,
    post_feedforward_layernorm: GemmaPowNorm,
    per_layer: Option<PerLayerGate>,
    experts: Option<ExpertsBlock>,
    layer_scalar: Tensor,
}

impl Gemma4DecoderLayer {
    fn new(at: &Builder, layer: usize, config: &Gemma4Config, options: &RunOptions) -> Self {
        let decoder = &config.decoder;
        let norm = |name| GemmaPowNorm::new(&at.at(name), decoder.hidden_size, decoder.norm_eps);
        Self {
            module: at.module(),
            self_attn: SharingAttention::new(&at.at("self_attn"), layer, decoder, config.shape(layer), options),
            mlp: DecoderMlp::new(&at.at("mlp"), &config.mlp(layer)),
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            pre_feedforward_layernorm: norm("pre_feedforward_layernorm"),
            post_feedforward_layernorm: norm("post_feedforward_layernorm"),
            per_layer: config.per_layer.map(|sizes| PerLayerGate::new(at, decoder, sizes)),
            experts: config.experts.as_ref().map(|experts| ExpertsBlock::new(at, decoder, experts)),
            layer_scalar: at.saved_buffer("layer_scalar", &[1], at.default_dtype(), Init::Ones),
        }
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall, beside: &Beside) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.input_layernorm.forward(residual);
        // `hidden_states, _ = ...`: the weights go when the router's probabilities are there.
        let (attn_output, attn_weights) = self.self_attn.forward(&hidden_states, call, &beside.shared_kv_states);
        hidden_states = attn_output;
        hidden_states = self.post_attention_layernorm.forward(&hidden_states);
        hidden_states = residual + &hidden_states;
        let mut residual = hidden_states.clone();
        hidden_states = self.pre_feedforward_layernorm.forward(&hidden_states);
        hidden_states = self.mlp.forward(&hidden_states);
        let mut _held = None;
        if let Some(experts) = &self.experts {
            let (combined, held) = experts.forward(&hidden_states, &residual, attn_weights, call.decodes);
            hidden_states = combined;
            _held = Some(held);
        } else {
            drop(attn_weights);
        }
        hidden_states = self.post_feedforward_layernorm.forward(&hidden_states);
        hidden_states = &residual + &hidden_states;
        if let (Some(gate), Some(per_layer_input)) = (&self.per_layer, &beside.per_layer_input) {
            residual = hidden_states.clone();
            hidden_states = gate.forward(hidden_states, per_layer_input);
            hidden_states = &residual + &hidden_states;
        }
        hidden_states.mul_in_place(&self.layer_scalar)
    }
}

/// What a layer is given beside what all decoders give theirs.
struct Beside {
    per_layer_input: Option<Tensor>,
    shared_kv_states: Rc<SharedKeys>,
}

struct Gemma4Model {
    module: Module,
    embed_tokens: ScaledEmbedding,
    layers: Vec<Rc<Gemma4DecoderLayer>>,
    norm: GemmaPowNorm,
    rotary_embs: Vec<(LayerType, RotaryEmbedding)>,
    per_layer: Option<PerLayerInputs>,
    config: Gemma4Config,
    options: RunOptions,
}

impl Gemma4Model {
    fn new(at: &Builder, config: Gemma4Config, options: &RunOptions) -> Self {
        let decoder = &config.decoder;
        let layer = |layer: u64| {
            Rc::new(Gemma4DecoderLayer::new(&at.at("layers").element(layer), layer as usize, &config, options))
        };
        let rotary = |(layer_type, rope): &(LayerType, Rope)| {
            let head_dim = config.head_dim(*layer_type);
            (*layer_type, RotaryEmbedding::new(&at.at("rotary_emb"), head_dim, rope))
        };
        Self {
            module: at.module(),
            embed_tokens: ScaledEmbedding::of_tokens(at, decoder),
            layers: (0..decoder.num_hidden_layers).map(layer).collect(),
            norm: GemmaPowNorm::new(&at.at("norm"), decoder.hidden_size, decoder.norm_eps),
            rotary_embs: config.rotary.iter().map(rotary).collect(),
            per_layer: config.per_layer.map(|sizes| PerLayerInputs::new(at, decoder, sizes)),
            options: options.clone(),
            config,
        }
    }
}

impl GemmaBase for Gemma4Model {
    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let inputs_embeds = self.options.require_input_grads(self.embed_tokens.forward(call.input_ids));
        let per_layer_inputs =
            self.per_layer.as_ref().map(|inputs| inputs.forward(call.input_ids, &inputs_embeds, None));
        let position_ids = call.position_ids_for(&inputs_embeds);
        let inputs = call.mask_inputs(self.options.attention, &inputs_embeds, &position_ids);
        let decoder = &self.config.decoder;
        let masks = LayerMasks::create(inputs, FULL_AND_SLIDING, decoder.sliding_window);
        let tables = rotary_tables(&self.rotary_embs, inputs_embeds.dtype(), &position_ids);
        let shared_kv_states = Rc::new(SharedKeys::default());
        let mut hidden_states = inputs_embeds.clone();
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
            let per_layer_input = per_layer_inputs.as_ref().map(|inputs| inputs.select(2, at as u64));
            let beside = Beside { per_layer_input, shared_kv_states: Rc::clone(&shared_kv_states) };
            let layer = Rc::clone(layer);
            hidden_states = call_region(&hidden_states, &self.options, move |hidden_states| {
                layer.module.call(hidden_states, |hidden_states| layer.forward(hidden_states, &layer_call, &beside))
            });
        }
        self.norm.forward(&hidden_states)
    }

    fn embed_tokens(&self) -> &Embedding {
        self.embed_tokens.embedding()
    }

    fn cache_windows(&self) -> Vec<Option<u64>> {
        shared_cache_windows(&self.config.decoder, self.config.first_shared)
    }
}

/// Rotary tables of each type of layer.
pub(crate) type Tables = Vec<(LayerType, (Tensor, Tensor))>;

pub(crate) fn rotary_tables(
    rotary_embs: &[(LayerType, RotaryEmbedding)],
    dtype: DType,
    position_ids: &Tensor,
) -> Tables {
    rotary_embs.iter().map(|(layer_type, rotary)| (*layer_type, rotary.forward(dtype, position_ids))).collect()
}

/// Those of a type, of which there are always some.
pub(crate) fn tables_of(tables: &Tables, layer_type: LayerType, otherwise: &Tensor) -> (Tensor, Tensor) {
    let found = tables.iter().find(|(known, _)| *known == layer_type);
    found.map_or_else(|| (otherwise.clone(), otherwise.clone()), |(_, both)| both.clone())
}

/// The windows of layers with keys of their own: the cache has no place for others.
pub(crate) fn shared_cache_windows(decoder: &DecoderConfig, first_shared: u64) -> Vec<Option<u64>> {
    let mut windows = decoder.windows();
    windows.truncate(first_shared as usize);
    windows
}
