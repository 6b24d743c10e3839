//! Gemma 2 (transformers/models/gemma2/modeling_gemma2.py), and the layers and model that Gemma 3 shares with it.

use std::rc::Rc;

use crate::building::{BuildError, Builder, Init, LigerKernels, Mode, Module, Part};
use crate::dtype::DType;
use crate::job::{Attention, FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{
    AttentionConfig, AttentionOutput, Embedding, LayerMasks, LayerType, Linear, Norm, Rope, RotaryEmbedding,
    apply_rotary_pos_emb, attention_forward, repeat_kv,
};
use crate::op::liger_rope;
use crate::tensor::Tensor;

use super::decoder::{DecoderConfig, DecoderDefaults};
use super::gated_mlp::DecoderMlp;
use super::gemma_causal_lm::{GemmaBase, GemmaForCausalLm};
use super::gemma_config::GemmaConfig;
use super::gemma_tower::SeeingGemma;
use super::layer::{DecoderLayer, LayerCall, call_layer};
use super::{Family, ForwardCall, Front, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["gemma2"], build };

/// `Gemma2Config`
pub(crate) const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 256_000,
    hidden_size: 2304,
    intermediate_size: 9216,
    num_hidden_layers: 26,
    num_attention_heads: 8,
    num_key_value_heads: Some(4),
    head_dim: Some(256),
    activation_key: "hidden_activation",
    activation: "gelu_pytorch_tanh",
    tie_word_embeddings: true,
    reads_mlp_bias: false,
    pad_token_id: Some(0),
    file: ModelingFile::Later,
    ..DecoderDefaults::LLAMA
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    Ok(new_model(at, &read(&model.config)?, options))
}

pub(super) fn read(fields: &Fields) -> Result<GemmaConfig, FieldError> {
    let decoder = DecoderConfig::read(fields, &DEFAULTS)?.with_layer_types(fields, |layer| {
        if layer % 2 == 0 { LayerType::SlidingAttention } else { LayerType::FullAttention }
    })?;
    GemmaConfig::read(fields, decoder, [Some(50.0), Some(30.0)])
}

/// `Gemma2ForCausalLM`, and `Gemma3ForCausalLM`, which differs by its config alone.
pub(crate) fn new_model(at: &Builder, config: &GemmaConfig, options: &RunOptions) -> Box<dyn Model> {
    let new_model = |at: &Builder| -> Box<dyn GemmaBase> {
        let (front, place) = Front::before(at, options, config.decoder.hidden_size);
        let model = GemmaModel::new(&place, config, options);
        match front {
            Some(front) => Box::new(SeeingGemma::new(front, model)),
            None => Box::new(model),
        }
    };
    Box::new(GemmaForCausalLm::with_model(at, &config.decoder, config.final_logit_softcapping, new_model))
}

/// `Gemma2RMSNorm`: fp32 to the end, with a weight centred on 1.
pub(crate) struct GemmaRmsNorm {
    module: Module,
    weight: Tensor,
    eps: f64,
    mode: Rc<Mode>,
}

impl GemmaRmsNorm {
    pub(crate) fn new(at: &Builder, width: u64, eps: f64) -> Self {
        Self { module: at.module(), weight: at.parameter("weight", &[width], Init::Zeros), eps, mode: at.mode() }
    }

    pub(crate) fn forward(&self, x: &Tensor) -> Tensor {
        let _module = self.module.enter();
        self.module.with_ranks(&self.module.hook_input(Part::Itself, x), |x| self.scaled_norm(x))
    }

    fn scaled_norm(&self, x: &Tensor) -> Tensor {
        if self.mode.liger_kernels() == LigerKernels::Layers {
            return x.liger_rms_norm(&self.weight, false); // The residual needs the incoming gradient.
        }
        let mut output = self.norm(&x.float());
        output = {
            let scale = self.weight.float().add_scalar(1.0);
            &output * &scale
        };
        output.to(x.dtype())
    }

    /// `x * rsqrt(x.pow(2).mean(-1) + eps)`
    fn norm(&self, x: &Tensor) -> Tensor {
        // Inner blocks are Python's temporaries: what they drop here is freed in the middle of the expression.
        let inverse = {
            let shifted = {
                let mean = x.pow_scalar(2.0).mean_last();
                mean.add_scalar(self.eps)
            };
            shifted.rsqrt()
        };
        x * &inverse
    }
}

impl Norm for GemmaRmsNorm {
    fn new(at: &Builder, width: u64, eps: f64) -> Self {
        Self::new(at, width, eps)
    }

    fn forward(&self, hidden_states: &Tensor) -> Tensor {
        self.forward(hidden_states)
    }
}

/// `Gemma2TextScaledWordEmbedding`
pub(crate) struct ScaledEmbedding {
    embedding: Embedding,
    module: Module,
    embed_scale: Tensor,
}

impl ScaledEmbedding {
    /// Of [count, width], multiplied by the root of `scaled_by`.
    pub(crate) fn new(at: &Builder, [count, width]: [u64; 2], padding_idx: Option<u64>, scaled_by: u64) -> Self {
        let embedding = Embedding::new(at, count, width, padding_idx);
        // Made while the model's dtype is the default one.
        let embed_scale = at.buffer(&[], at.default_dtype(), || vec![(scaled_by as f64).sqrt()]);
        Self { module: at.module(), embedding, embed_scale }
    }

    /// That of a decoder's tokens, scaled by the root of their width.
    pub(crate) fn of_tokens(at: &Builder, decoder: &DecoderConfig) -> Self {
        let sizes = [decoder.vocab_size, decoder.hidden_size];
        let place = at.at("embed_tokens").tied_to_head(decoder.tie_word_embeddings);
        Self::new(&place, sizes, decoder.pad_token_id, decoder.hidden_size)
    }

    pub(crate) fn embedding(&self) -> &Embedding {
        &self.embedding
    }

    pub(crate) fn forward(&self, input_ids: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let scaled = |embedded: Tensor| &embedded * &self.embed_scale.to(self.embedding.weight.dtype());
        self.module.with_ranks(input_ids, |input_ids| scaled(self.embedding.look_up(input_ids)))
    }
}

struct GemmaAttention {
    module: Module,
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    /// Gemma 3's norms on q and k.
    norms: Option<(GemmaRmsNorm, GemmaRmsNorm)>,
    config: GemmaConfig,
    options: RunOptions,
}

impl GemmaAttention {
    fn new(at: &Builder, config: &GemmaConfig, options: &RunOptions) -> Self {
        let decoder = &config.decoder;
        let (query_width, key_value_width) = decoder.widths();
        let hidden = decoder.hidden_size;
        Self {
            module: at.module(),
            q_proj: Linear::new(&at.at("q_proj"), hidden, query_width, decoder.qkv_bias),
            k_proj: Linear::new(&at.at("k_proj"), hidden, key_value_width, decoder.qkv_bias),
            v_proj: Linear::new(&at.at("v_proj"), hidden, key_value_width, decoder.qkv_bias),
            o_proj: Linear::new(&at.at("o_proj"), query_width, hidden, decoder.o_bias),
            norms: decoder.qk_norm.then(|| {
                let norm = |name| GemmaRmsNorm::new(&at.at(name), decoder.head_dim, decoder.norm_eps);
                (norm("q_norm"), norm("k_norm"))
            }),
            config: config.clone(),
            options: options.clone(),
        }
    }

    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let (rows, tokens) = (hidden_states.size(0), hidden_states.size(1));
        let head_dim = self.config.decoder.head_dim;
        let heads_first = |projected: Tensor| {
            projected.view(&[rows, tokens, projected.size(-1) / head_dim, head_dim]).transpose(1, 2)
        };
        let mut query_states = heads_first(self.q_proj.forward(hidden_states));
        let mut key_states = heads_first(self.k_proj.forward(hidden_states));
        let mut value_states = heads_first(self.v_proj.forward(hidden_states));
        if let Some((q_norm, k_norm)) = &self.norms {
            query_states = q_norm.forward(&query_states);
            key_states = k_norm.forward(&key_states);
        }
        (query_states, key_states) = if self.options.mode.liger_kernels() == LigerKernels::Off {
            apply_rotary_pos_emb(&query_states, &key_states, &call.cos, &call.sin)
        } else {
            liger_rope(&query_states, &key_states, &call.cos, &call.sin)
        };
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let (mut attn_output, attn_weights) = self.attend(&query_states, &key_states, &value_states, call);
        attn_output = attn_output.reshape(&[rows, tokens, attn_output.size(2) * attn_output.size(3)]).contiguous();
        (self.o_proj.forward(&attn_output), attn_weights)
    }

    fn attend(&self, query: &Tensor, key: &Tensor, value: &Tensor, call: &LayerCall) -> AttentionOutput {
        let (mask, position_ids) = (call.mask.as_ref(), Some(&call.position_ids));
        let decoder = &self.config.decoder;
        let config = AttentionConfig {
            implementation: self.options.attention,
            num_key_value_groups: decoder.num_attention_heads / decoder.num_key_value_heads,
            dropout: self.options.active_call(decoder.attention_dropout),
            is_causal: true,
            scale: self.config.query_pre_attn_scalar.powf(-0.5),
        };
        if self.options.attention == Attention::Eager {
            eager_attention_forward(query, key, value, mask, config, self.config.attn_logit_softcapping)
        } else {
            (attention_forward(query, key, value, (mask, position_ids), config), None)
        }
    }
}

pub(crate) fn eager_attention_forward(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    mask: Option<&Tensor>,
    config: AttentionConfig,
    softcap: Option<f64>,
) -> AttentionOutput {
    let key_states = repeat_kv(key, config.num_key_value_groups);
    let value_states = repeat_kv(value, config.num_key_value_groups);
    let mut attn_weights = query.matmul(&key_states.transpose(2, 3)).mul_scalar(config.scale);
    if let Some(softcap) = softcap {
        attn_weights = cap(attn_weights, softcap);
    }
    if let Some(mask) = mask {
        attn_weights = &attn_weights + mask;
    }
    attn_weights = attn_weights.softmax(Some(DType::Float32)).to(query.dtype());
    attn_weights = attn_weights.dropout(config.dropout, true);
    let attn_output = attn_weights.matmul(&value_states);
    (attn_output.transpose(1, 2).contiguous(), Some(attn_weights))
}

/// `tanh(x / cap) * cap`, statement by statement.
pub(crate) fn cap(mut x: Tensor, softcap: f64) -> Tensor {
    x = x.div_scalar(softcap);
    x = x.tanh();
    x.mul_scalar(softcap)
}

struct GemmaDecoderLayer {
    module: Module,
    layer: usize,
    self_attn: GemmaAttention,
    mlp: DecoderMlp,
    input_layernorm: GemmaRmsNorm,
    post_attention_layernorm: GemmaRmsNorm,
    /// Gemma has none of them: its `post_attention_layernorm` stands before the MLP.
    feedforward_layernorms: Option<[GemmaRmsNorm; 2]>,
}

impl GemmaDecoderLayer {
    fn new(at: &Builder, layer: usize, config: &GemmaConfig, options: &RunOptions) -> Self {
        let norm = |name| GemmaRmsNorm::new(&at.at(name), config.decoder.hidden_size, config.decoder.norm_eps);
        Self {
            module: at.module(),
            layer,
            self_attn: GemmaAttention::new(&at.at("self_attn"), config, options),
            mlp: DecoderMlp::new(&at.at("mlp"), &config.decoder),
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            feedforward_layernorms: config
                .is_sandwich
                .then(|| ["pre_feedforward_layernorm", "post_feedforward_layernorm"].map(norm)),
        }
    }
}

impl DecoderLayer for GemmaDecoderLayer {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.input_layernorm.forward(residual);
        let (attn_output, _weights) = self.self_attn.forward(&hidden_states, call, self.layer);
        hidden_states = attn_output;
        if self.feedforward_layernorms.is_some() {
            hidden_states = self.post_attention_layernorm.forward(&hidden_states);
        }
        hidden_states = residual + &hidden_states;
        let residual = hidden_states.clone();
        let before = self.feedforward_layernorms.as_ref().map_or(&self.post_attention_layernorm, |norms| &norms[0]);
        hidden_states = before.forward(&hidden_states);
        hidden_states = self.mlp.forward(&hidden_states);
        if let Some([_, after]) = &self.feedforward_layernorms {
            hidden_states = after.forward(&hidden_states);
        }
        &residual + &hidden_states
    }
}

pub(super) struct GemmaModel {
    pub(super) module: Module,
    embed_tokens: ScaledEmbedding,
    layers: Vec<Rc<GemmaDecoderLayer>>,
    norm: GemmaRmsNorm,
    rotary_embs: Vec<RotaryEmbedding>,
    pub(super) config: GemmaConfig,
    pub(super) options: RunOptions,
}

impl GemmaModel {
    fn new(at: &Builder, config: &GemmaConfig, options: &RunOptions) -> Self {
        let decoder = &config.decoder;
        let layer = |layer: u64| {
            Rc::new(GemmaDecoderLayer::new(&at.at("layers").element(layer), layer as usize, config, options))
        };
        let rotary = |(_, rope): &(LayerType, Rope)| RotaryEmbedding::new(&at.at("rotary_emb"), decoder.head_dim, rope);
        Self {
            module: at.module(),
            embed_tokens: ScaledEmbedding::of_tokens(at, decoder),
            layers: (0..decoder.num_hidden_layers).map(layer).collect(),
            norm: GemmaRmsNorm::new(&at.at("norm"), decoder.hidden_size, decoder.norm_eps),
            rotary_embs: config.rotary.iter().map(rotary).collect(),
            config: config.clone(),
            options: options.clone(),
        }
    }

    /// Which rotary tables a type of layer uses.
    fn rotary_of(&self, layer_type: LayerType) -> usize {
        self.config.rotary.iter().position(|(known, _)| *known == layer_type).unwrap_or(0)
    }
}

impl GemmaModel {
    /// `get_input_embeddings()(input_ids)`
    pub(super) fn embed(&self, input_ids: &Tensor) -> Tensor {
        self.options.require_input_grads(self.embed_tokens.forward(input_ids))
    }

    /// The layers, with masks of their own where none are given.
    pub(super) fn run_layers(&self, call: &ForwardCall, inputs_embeds: &Tensor, masks: Option<LayerMasks>) -> Tensor {
        let position_ids = call.position_ids_for(inputs_embeds);
        let decoder = &self.config.decoder;
        let masks = masks.unwrap_or_else(|| {
            let inputs = call.mask_inputs(self.options.attention, inputs_embeds, &position_ids);
            LayerMasks::create(inputs, decoder.mask_types, decoder.sliding_window)
        });
        let rotary = |rotary_emb: &RotaryEmbedding| rotary_emb.forward(inputs_embeds.dtype(), &position_ids);
        // Where there are two, transformers goes through a set of names, whose order is Python's hash's.
        let position_embeddings: Vec<(Tensor, Tensor)> = self.rotary_embs.iter().map(rotary).collect();
        let mut hidden_states = inputs_embeds.clone();
        for (layer, &layer_type) in self.layers.iter().zip(decoder.layer_types.iter()) {
            let (cos, sin) = position_embeddings[self.rotary_of(layer_type)].clone();
            let mask = masks.of(layer_type).cloned();
            let layer_call = LayerCall {
                cos,
                sin,
                position_ids: position_ids.clone(),
                embedded: None,
                linear_mask: None,
                mask,
                cache: call.cache.clone(),
                decodes: call.decodes(),
            };
            hidden_states = call_layer(layer, &hidden_states, layer_call, &self.options);
        }
        self.norm.forward(&hidden_states)
    }
}

impl GemmaBase for GemmaModel {
    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let inputs_embeds = self.embed(call.input_ids);
        self.run_layers(call, &inputs_embeds, None)
    }

    fn embed_tokens(&self) -> &Embedding {
        self.embed_tokens.embedding()
    }

    fn cache_windows(&self) -> Vec<Option<u64>> {
        self.config.decoder.windows()
    }
}
