//! Gemma 2 (transformers/models/gemma2/modeling_gemma2.py), and the layers and model that Gemma 3 shares with it.

use std::rc::Rc;

use crate::dtype::DType;
use crate::job::{Attention, FieldError, Fields, ModelSpec, ModelingFile};
use crate::nn::{
    AttentionConfig, AttentionOutput, BuildError, Builder, Embedding, HeadOutput, KvCache, LayerMasks, LayerType,
    LigerKernels, Linear, LmHead, Mode, Module, RopeType, RotaryEmbedding, apply_rotary_pos_emb, attention_forward,
    repeat_kv,
};
use crate::op::liger_rope;
use crate::tensor::Tensor;

use super::decoder::{DecoderConfig, DecoderDefaults, FULL_AND_SLIDING};
use super::layer::{DecoderLayer, LayerCall, call_layer};
use super::llama::DecoderMlp;
use super::{Build, Family, ForwardCall, Model, ModelOutput, RunOptions};

pub(super) const FAMILY: Family = Family { model_types: &["gemma2"], build: Build::LanguageModel(build) };

/// `Gemma2Config`
pub(super) const DEFAULTS: DecoderDefaults = DecoderDefaults {
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
    file: ModelingFile::Later,
    ..DecoderDefaults::LLAMA
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let decoder = DecoderConfig::read(&model.config, &DEFAULTS)?.with_layer_types(&model.config, |layer| {
        if layer % 2 == 0 { LayerType::SlidingAttention } else { LayerType::FullAttention }
    })?;
    let softcapping = [Some(50.0), Some(30.0)];
    Ok(Box::new(GemmaForCausalLm::new(at, &GemmaConfig::read(&model.config, decoder, softcapping)?, options)))
}

/// What a Gemma config has beyond a decoder's.
#[derive(Clone)]
pub(super) struct GemmaConfig {
    pub decoder: DecoderConfig,
    /// Whether layers hand `attn_logit_softcapping` on to attention.
    pub caps_scores: bool,
    final_logit_softcapping: bool,
    /// The rotary tables of each type of layer; one for all where there is only one.
    pub rotary_types: Vec<LayerType>,
}

impl GemmaConfig {
    /// `softcapping`: what `attn_logit_softcapping` and `final_logit_softcapping` are by default.
    pub(super) fn read(
        fields: &Fields,
        mut decoder: DecoderConfig,
        softcapping: [Option<f64>; 2],
    ) -> Result<Self, FieldError> {
        if fields.flag("use_bidirectional_attention", false)? {
            return Err(FieldError::unsimulated("use_bidirectional_attention", "only causal attention is simulated"));
        }
        if fields.0.get("sliding_window").is_some_and(serde_json::Value::is_null) {
            return Err(FieldError::new("sliding_window", "must be a positive integer, found null"));
        }
        decoder.sliding_window = fields.size("sliding_window", 4096)?;
        decoder.mask_types = FULL_AND_SLIDING;
        let caps = |key: &str, default: Option<f64>| match fields.0.get(key) {
            Some(value) => !value.is_null(),
            None => default.is_some(),
        };
        Ok(Self {
            decoder,
            caps_scores: caps("attn_logit_softcapping", softcapping[0]),
            final_logit_softcapping: caps("final_logit_softcapping", softcapping[1]),
            rotary_types: vec![LayerType::FullAttention],
        })
    }
}

/// `Gemma2RMSNorm`: fp32 to the end, with a weight centred on 1.
pub(super) struct GemmaRmsNorm {
    module: Module,
    weight: Tensor,
    mode: Rc<Mode>,
}

impl GemmaRmsNorm {
    pub(super) fn new(at: &Builder, width: u64) -> Self {
        Self { module: at.module(), weight: at.parameter(&[width]), mode: at.mode() }
    }

    pub(super) fn forward(&self, x: &Tensor) -> Tensor {
        let _module = self.module.enter();
        if self.mode.liger_kernels() == LigerKernels::Layers {
            // The residual needs the incoming gradient.
            return x.liger_rms_norm(&self.weight, false);
        }
        let mut output = Self::norm(&x.float());
        output = {
            let scale = self.weight.float().add_scalar();
            &output * &scale
        };
        output.to(x.dtype())
    }

    /// `x * rsqrt(x.pow(2).mean(-1) + eps)`
    fn norm(x: &Tensor) -> Tensor {
        // Inner blocks are Python's temporaries: what they drop here is freed in the middle of the expression.
        let inverse = {
            let shifted = {
                let mean = x.pow_scalar().mean_last();
                mean.add_scalar()
            };
            shifted.rsqrt()
        };
        x * &inverse
    }
}

/// `Gemma2TextScaledWordEmbedding`
struct ScaledEmbedding {
    embedding: Embedding,
    module: Module,
    embed_scale: Tensor,
}

impl ScaledEmbedding {
    fn new(at: &Builder, count: u64, width: u64) -> Self {
        let embedding = Embedding::new(at, count, width);
        // Made while the model's dtype is the default one.
        let embed_scale = at.buffer(&[], at.dtype());
        Self { module: at.module(), embedding, embed_scale }
    }

    fn forward(&self, input_ids: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let embedded = self.embedding.forward(input_ids);
        &embedded * &self.embed_scale.to(self.embedding.weight.dtype())
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
                let norm = |name| GemmaRmsNorm::new(&at.at(name), decoder.head_dim);
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
        let (mask, position_ids) = (call.mask.as_ref(), &call.position_ids);
        let decoder = &self.config.decoder;
        let config = AttentionConfig {
            implementation: self.options.attention,
            num_key_value_groups: decoder.num_attention_heads / decoder.num_key_value_heads,
            dropout: self.options.active(decoder.attention_dropout),
            is_causal: true,
        };
        if self.options.attention == Attention::Eager {
            eager_attention_forward(query, key, value, mask, config, self.config.caps_scores)
        } else {
            (attention_forward(query, key, value, (mask, position_ids), config), None)
        }
    }
}

fn eager_attention_forward(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    mask: Option<&Tensor>,
    config: AttentionConfig,
    softcap: bool,
) -> AttentionOutput {
    let key_states = repeat_kv(key, config.num_key_value_groups);
    let value_states = repeat_kv(value, config.num_key_value_groups);
    let mut attn_weights = query.matmul(&key_states.transpose(2, 3)).mul_scalar();
    if softcap {
        attn_weights = cap(attn_weights);
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
fn cap(mut x: Tensor) -> Tensor {
    x = x.div_scalar();
    x = x.tanh();
    x.mul_scalar()
}

struct GemmaDecoderLayer {
    module: Module,
    layer: usize,
    self_attn: GemmaAttention,
    mlp: DecoderMlp,
    input_layernorm: GemmaRmsNorm,
    post_attention_layernorm: GemmaRmsNorm,
    pre_feedforward_layernorm: GemmaRmsNorm,
    post_feedforward_layernorm: GemmaRmsNorm,
}

impl GemmaDecoderLayer {
    fn new(at: &Builder, layer: usize, config: &GemmaConfig, options: &RunOptions) -> Self {
        let norm = |name| GemmaRmsNorm::new(&at.at(name), config.decoder.hidden_size);
        Self {
            module: at.module(),
            layer,
            self_attn: GemmaAttention::new(&at.at("self_attn"), config, options),
            mlp: DecoderMlp::new(&at.at("mlp"), &config.decoder),
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            pre_feedforward_layernorm: norm("pre_feedforward_layernorm"),
            post_feedforward_layernorm: norm("post_feedforward_layernorm"),
        }
    }
}

impl DecoderLayer for GemmaDecoderLayer {
    fn module(&self) -> &Module {
        &self.module
    }

    fn index(&self) -> usize {
        self.layer
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.input_layernorm.forward(residual);
        let (attn_output, _weights) = self.self_attn.forward(&hidden_states, call, self.layer);
        hidden_states = attn_output;
        hidden_states = self.post_attention_layernorm.forward(&hidden_states);
        hidden_states = residual + &hidden_states;
        let residual = hidden_states.clone();
        hidden_states = self.pre_feedforward_layernorm.forward(&hidden_states);
        hidden_states = self.mlp.forward(&hidden_states);
        hidden_states = self.post_feedforward_layernorm.forward(&hidden_states);
        &residual + &hidden_states
    }
}

struct GemmaModel {
    module: Module,
    embed_tokens: ScaledEmbedding,
    layers: Vec<Rc<GemmaDecoderLayer>>,
    norm: GemmaRmsNorm,
    rotary_embs: Vec<RotaryEmbedding>,
    config: GemmaConfig,
    options: RunOptions,
}

impl GemmaModel {
    fn new(at: &Builder, config: &GemmaConfig, options: &RunOptions) -> Self {
        let decoder = &config.decoder;
        let layer = |layer: u64| {
            Rc::new(GemmaDecoderLayer::new(&at.at("layers").element(layer), layer as usize, config, options))
        };
        let rope = if config.rotary_types.len() > 1 { RopeType::Fixed } else { decoder.rope };
        let rotary = |_: &LayerType| RotaryEmbedding::new(&at.at("rotary_emb"), decoder.head_dim, rope);
        Self {
            module: at.module(),
            embed_tokens: ScaledEmbedding::new(&at.at("embed_tokens"), decoder.vocab_size, decoder.hidden_size),
            layers: (0..decoder.num_hidden_layers).map(layer).collect(),
            norm: GemmaRmsNorm::new(&at.at("norm"), decoder.hidden_size),
            rotary_embs: config.rotary_types.iter().map(rotary).collect(),
            config: config.clone(),
            options: options.clone(),
        }
    }

    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let inputs_embeds = self.options.require_input_grads(self.embed_tokens.forward(call.input_ids));
        let position_ids = call.position_ids_for(&inputs_embeds);
        let inputs = call.mask_inputs(self.options.attention, &inputs_embeds, &position_ids);
        let decoder = &self.config.decoder;
        let masks = LayerMasks::create(inputs, decoder.mask_types, decoder.sliding_window);
        let rotary = |rotary_emb: &RotaryEmbedding| rotary_emb.forward(inputs_embeds.dtype(), &position_ids);
        // Where there are two, transformers goes through a set of names, whose order is Python's hash's.
        let position_embeddings: Vec<(Tensor, Tensor)> = self.rotary_embs.iter().map(rotary).collect();
        let mut hidden_states = inputs_embeds.clone();
        for (layer, &layer_type) in self.layers.iter().zip(decoder.layer_types.iter()) {
            let (cos, sin) = position_embeddings[self.rotary_of(layer_type)].clone();
            let mask = masks.of(layer_type).cloned();
            let layer_call =
                LayerCall { cos, sin, position_ids: position_ids.clone(), mask, cache: call.cache.clone() };
            hidden_states = call_layer(layer, &hidden_states, layer_call, &self.options);
        }
        self.norm.forward(&hidden_states)
    }

    /// Which rotary tables a type of layer uses.
    fn rotary_of(&self, layer_type: LayerType) -> usize {
        self.config.rotary_types.iter().position(|known| *known == layer_type).unwrap_or(0)
    }
}

/// `Gemma2ForCausalLM`, `Gemma3ForCausalLM`
pub(super) struct GemmaForCausalLm {
    module: Module,
    model: GemmaModel,
    lm_head: LmHead,
}

impl GemmaForCausalLm {
    pub(super) fn new(at: &Builder, config: &GemmaConfig, options: &RunOptions) -> Self {
        let module = at.module();
        let model = GemmaModel::new(&at.at("model"), config, options);
        let decoder = &config.decoder;
        let tied = decoder.tie_word_embeddings.then_some(&model.embed_tokens.embedding);
        let lm_head = LmHead::new(&at.at("lm_head"), decoder.hidden_size, decoder.vocab_size, tied);
        Self { module, model, lm_head }
    }
}

impl Model for GemmaForCausalLm {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let hidden_states = self.model.forward(call);
        let caps = self.model.config.final_logit_softcapping;
        let cap_logits = |logits| if caps { cap(logits) } else { logits };
        let HeadOutput { loss, logits } = self.lm_head.forward(&hidden_states, &call.head(), cap_logits);
        ModelOutput { loss, logits, cache: call.cache.clone() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.model.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        self.lm_head.linear()
    }

    fn new_cache(&self) -> Rc<KvCache> {
        Rc::new(KvCache::new(self.model.config.decoder.windows()))
    }
}
