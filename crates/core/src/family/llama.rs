//! Llama (transformers/models/llama/modeling_llama.py), and the decoder that Mistral, Qwen2 and Qwen3 share with it.

use std::rc::Rc;

use crate::dtype::DType;
use crate::nn::{
    Activation, AttentionConfig, BuildError, Builder, Embedding, KvCache, Linear, LmHead, Module, RmsNorm,
    RotaryEmbedding, apply_rotary_pos_emb, causal_lm_loss, find_packed_sequence_indices, position_ids, repeat_kv,
    sdpa_attention_forward,
};
use crate::spec::{Attention, FieldError, Fields, ModelSpec};
use crate::tensor::{Tensor, checkpoint};

use super::{Family, ForwardCall, Model, ModelOutput, RunOptions};

pub(super) const FAMILY: Family = Family { model_types: &["llama"], has_begin_token: true, build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = DecoderConfig::read(&model.config, &DecoderDefaults::LLAMA)?;
    Ok(Box::new(DecoderForCausalLm::new(at, config, *options)))
}

/// What a config class of this kind fills in.
pub(super) struct DecoderDefaults {
    pub vocab_size: u64,
    pub hidden_size: u64,
    pub intermediate_size: u64,
    pub num_hidden_layers: u64,
    pub num_attention_heads: u64,
    pub num_key_value_heads: Option<u64>,
    pub head_dim: Option<u64>,
    pub tie_word_embeddings: bool,
    pub qkv_bias: bool,
    pub qk_norm: bool,
}

impl DecoderDefaults {
    /// `LlamaConfig`
    pub(super) const LLAMA: Self = Self {
        vocab_size: 32000,
        hidden_size: 4096,
        intermediate_size: 11008,
        num_hidden_layers: 32,
        num_attention_heads: 32,
        num_key_value_heads: None,
        head_dim: None,
        tie_word_embeddings: false,
        qkv_bias: false,
        qk_norm: false,
    };
}

/// The config of a decoder.
#[derive(Clone, Copy)]
pub(super) struct DecoderConfig {
    vocab_size: u64,
    hidden_size: u64,
    intermediate_size: u64,
    num_hidden_layers: u64,
    num_attention_heads: u64,
    num_key_value_heads: u64,
    head_dim: u64,
    activation: Activation,
    attention_dropout: f64,
    qkv_bias: bool,
    o_bias: bool,
    mlp_bias: bool,
    qk_norm: bool,
    tie_word_embeddings: bool,
}

impl DecoderConfig {
    pub(super) fn read(fields: &Fields, defaults: &DecoderDefaults) -> Result<Self, FieldError> {
        let num_attention_heads = fields.size("num_attention_heads", defaults.num_attention_heads)?;
        let hidden_size = fields.size("hidden_size", defaults.hidden_size)?;
        let head_dim = fields.optional_size("head_dim")?.or(defaults.head_dim);
        let key_value_heads = fields.optional_size("num_key_value_heads")?.or(defaults.num_key_value_heads);
        let attention_bias = fields.flag("attention_bias", false)?;
        let config = Self {
            vocab_size: fields.size("vocab_size", defaults.vocab_size)?,
            hidden_size,
            intermediate_size: fields.size("intermediate_size", defaults.intermediate_size)?,
            num_hidden_layers: fields.size("num_hidden_layers", defaults.num_hidden_layers)?,
            num_attention_heads,
            num_key_value_heads: key_value_heads.unwrap_or(num_attention_heads),
            head_dim: head_dim.unwrap_or(hidden_size / num_attention_heads),
            activation: Activation::from_name("hidden_act", fields.text("hidden_act", "silu")?)?,
            attention_dropout: fields.probability("attention_dropout", 0.0)?,
            qkv_bias: attention_bias || defaults.qkv_bias,
            o_bias: attention_bias,
            mlp_bias: fields.flag("mlp_bias", false)?,
            qk_norm: defaults.qk_norm,
            tie_word_embeddings: fields.flag("tie_word_embeddings", defaults.tie_word_embeddings)?,
        };
        config.check(head_dim)?;
        Ok(config)
    }

    fn check(&self, head_dim: Option<u64>) -> Result<(), FieldError> {
        if head_dim.is_none() && !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            let problem = format!("{} does not divide hidden_size = {}", self.num_attention_heads, self.hidden_size);
            return Err(FieldError::new("num_attention_heads", problem));
        }
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            let (kv, heads) = (self.num_key_value_heads, self.num_attention_heads);
            let problem = format!("{kv} does not divide num_attention_heads = {heads}");
            return Err(FieldError::new("num_key_value_heads", problem));
        }
        Ok(())
    }
}

struct DecoderMlp {
    module: Module,
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
    act_fn: Module,
    activation: Activation,
}

impl DecoderMlp {
    fn new(at: &Builder, config: DecoderConfig) -> Self {
        let (hidden, inner, bias) = (config.hidden_size, config.intermediate_size, config.mlp_bias);
        Self {
            module: at.module(),
            gate_proj: Linear::new(&at.at("gate_proj"), hidden, inner, bias),
            up_proj: Linear::new(&at.at("up_proj"), hidden, inner, bias),
            down_proj: Linear::new(&at.at("down_proj"), inner, hidden, bias),
            act_fn: at.at("act_fn").module(),
            activation: config.activation,
        }
    }

    /// `down_proj(act_fn(gate_proj(x)) * up_proj(x))`
    fn forward(&self, x: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let product = {
            let activated = {
                let gate = self.gate_proj.forward(x);
                let _act_fn = self.act_fn.enter();
                self.activation.forward(&gate)
            };
            let up = self.up_proj.forward(x);
            &activated * &up
        };
        self.down_proj.forward(&product)
    }
}

struct DecoderAttention {
    module: Module,
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    norms: Option<(RmsNorm, RmsNorm)>,
    config: DecoderConfig,
    options: RunOptions,
}

impl DecoderAttention {
    fn new(at: &Builder, config: DecoderConfig, options: RunOptions) -> Self {
        let (hidden, bias) = (config.hidden_size, config.qkv_bias);
        let query_width = config.num_attention_heads * config.head_dim;
        let key_value_width = config.num_key_value_heads * config.head_dim;
        Self {
            module: at.module(),
            q_proj: Linear::new(&at.at("q_proj"), hidden, query_width, bias),
            k_proj: Linear::new(&at.at("k_proj"), hidden, key_value_width, bias),
            v_proj: Linear::new(&at.at("v_proj"), hidden, key_value_width, bias),
            o_proj: Linear::new(&at.at("o_proj"), query_width, hidden, config.o_bias),
            norms: config.qk_norm.then(|| {
                let norm = |name| RmsNorm::new(&at.at(name), config.head_dim);
                (norm("q_norm"), norm("k_norm"))
            }),
            config,
            options,
        }
    }

    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> Tensor {
        let _module = self.module.enter();
        let (batch, tokens) = (hidden_states.size(0), hidden_states.size(1));
        let heads_last = |projected: Tensor, norm: Option<&RmsNorm>| {
            let heads = projected.size(-1) / self.config.head_dim;
            let split = projected.view(&[batch, tokens, heads, self.config.head_dim]);
            match norm {
                Some(norm) => norm.forward(&split).transpose(1, 2),
                None => split.transpose(1, 2),
            }
        };
        let query_norm = self.norms.as_ref().map(|(query, _)| query);
        let key_norm = self.norms.as_ref().map(|(_, key)| key);
        let mut query_states = heads_last(self.q_proj.forward(hidden_states), query_norm);
        let mut key_states = heads_last(self.k_proj.forward(hidden_states), key_norm);
        let mut value_states = heads_last(self.v_proj.forward(hidden_states), None);
        (query_states, key_states) = apply_rotary_pos_emb(&query_states, &key_states, &call.cos, &call.sin);
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let mut attn_output = self.attend(&query_states, &key_states, &value_states, call.mask.as_ref());
        attn_output = attn_output.reshape(&[batch, tokens, attn_output.size(2) * attn_output.size(3)]).contiguous();
        self.o_proj.forward(&attn_output)
    }

    fn attend(&self, query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let config = AttentionConfig {
            implementation: self.options.attention,
            num_key_value_groups: self.config.num_attention_heads / self.config.num_key_value_heads,
            dropout: self.options.active(self.config.attention_dropout),
            is_causal: true,
        };
        if self.options.attention == Attention::Eager {
            eager_attention_forward(query, key, value, mask, config)
        } else {
            sdpa_attention_forward(query, key, value, mask, config)
        }
    }
}

/// `eager_attention_forward` of the Llama family: softmax in fp32.
pub(super) fn eager_attention_forward(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    mask: Option<&Tensor>,
    config: AttentionConfig,
) -> Tensor {
    let key_states = repeat_kv(key, config.num_key_value_groups);
    let value_states = repeat_kv(value, config.num_key_value_groups);
    let mut attn_weights = query.matmul(&key_states.transpose(2, 3)).mul_scalar();
    if let Some(mask) = mask {
        attn_weights = &attn_weights + mask;
    }
    attn_weights = attn_weights.softmax(Some(DType::Float32)).to(query.dtype());
    attn_weights = attn_weights.dropout(config.dropout, true);
    let attn_output = attn_weights.matmul(&value_states);
    attn_output.transpose(1, 2).contiguous()
}

/// What all layers of a forward call share.
#[derive(Clone)]
struct LayerCall {
    cos: Tensor,
    sin: Tensor,
    /// Not read by the layers, but alive as long as what a checkpointed layer needs to run again.
    _position_ids: Tensor,
    mask: Option<Tensor>,
    cache: Option<Rc<KvCache>>,
}

struct DecoderLayer {
    module: Module,
    layer: usize,
    self_attn: DecoderAttention,
    mlp: DecoderMlp,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
}

impl DecoderLayer {
    fn new(at: &Builder, layer: usize, config: DecoderConfig, options: RunOptions) -> Self {
        Self {
            module: at.module(),
            layer,
            self_attn: DecoderAttention::new(&at.at("self_attn"), config, options),
            mlp: DecoderMlp::new(&at.at("mlp"), config),
            input_layernorm: RmsNorm::new(&at.at("input_layernorm"), config.hidden_size),
            post_attention_layernorm: RmsNorm::new(&at.at("post_attention_layernorm"), config.hidden_size),
        }
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.input_layernorm.forward(residual);
        hidden_states = self.self_attn.forward(&hidden_states, call, self.layer);
        hidden_states = residual + &hidden_states;
        let residual = hidden_states.clone();
        hidden_states = self.post_attention_layernorm.forward(&hidden_states);
        hidden_states = self.mlp.forward(&hidden_states);
        &residual + &hidden_states
    }
}

struct DecoderModel {
    module: Module,
    embed_tokens: Embedding,
    layers: Vec<Rc<DecoderLayer>>,
    norm: RmsNorm,
    rotary_emb: RotaryEmbedding,
    options: RunOptions,
}

impl DecoderModel {
    fn new(at: &Builder, config: DecoderConfig, options: RunOptions) -> Self {
        let layer = |layer: u64| {
            Rc::new(DecoderLayer::new(&at.at("layers").at(&layer.to_string()), layer as usize, config, options))
        };
        Self {
            module: at.module(),
            embed_tokens: Embedding::new(&at.at("embed_tokens"), config.vocab_size, config.hidden_size),
            layers: (0..config.num_hidden_layers).map(layer).collect(),
            norm: RmsNorm::new(&at.at("norm"), config.hidden_size),
            rotary_emb: RotaryEmbedding::new(&at.at("rotary_emb"), config.head_dim),
            options,
        }
    }

    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let context = call.input_ids.context();
        let inputs_embeds = self.options.require_input_grads(self.embed_tokens.forward(call.input_ids));
        let position_ids = match call.position_ids {
            Some(position_ids) => position_ids.clone(),
            None => position_ids(context, inputs_embeds.size(1)),
        };
        if call.attention_mask.is_none() && call.cache.is_none() {
            find_packed_sequence_indices(&position_ids.expand(&[inputs_embeds.size(0), position_ids.size(1)]));
        }
        let (cos, sin) = self.rotary_emb.forward(inputs_embeds.dtype(), &position_ids);
        let layer_call = LayerCall { cos, sin, _position_ids: position_ids, mask: None, cache: call.cache.clone() };
        let mut hidden_states = inputs_embeds.clone();
        for layer in &self.layers {
            hidden_states = if self.options.checkpoints_layers() {
                let (layer, layer_call) = (Rc::clone(layer), LayerCall { cache: None, ..layer_call.clone() });
                checkpoint(&hidden_states, move |hidden_states| layer.forward(hidden_states, &layer_call))
            } else {
                layer.forward(&hidden_states, &layer_call)
            };
        }
        self.norm.forward(&hidden_states)
    }
}

/// `LlamaForCausalLM` and its relatives.
pub(super) struct DecoderForCausalLm {
    module: Module,
    model: DecoderModel,
    lm_head: LmHead,
}

impl DecoderForCausalLm {
    pub(super) fn new(at: &Builder, config: DecoderConfig, options: RunOptions) -> Self {
        let module = at.module();
        let model = DecoderModel::new(&at.at("model"), config, options);
        let tied = config.tie_word_embeddings.then_some(&model.embed_tokens);
        let lm_head = LmHead::new(&at.at("lm_head"), config.hidden_size, config.vocab_size, tied);
        Self { module, model, lm_head }
    }
}

impl Model for DecoderForCausalLm {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let hidden_states = self.model.forward(call);
        let logits = self.lm_head.forward(&hidden_states, call.logits_to_keep);
        let loss = call.labels.map(|labels| causal_lm_loss(&logits, labels));
        ModelOutput { loss, logits, cache: call.cache.clone() }
    }
}
