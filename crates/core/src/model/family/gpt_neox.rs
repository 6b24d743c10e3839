//! GPT-NeoX and Pythia (transformers/models/gpt_neox/modeling_gpt_neox.py): both branches from the layer's input, each behind a norm of
//! its own, one matrix for queries, keys and values of each head, rotary embeddings on a part of it.

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module};
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{
    Activation, AttentionOutput, Embedding, HeadOutput, LayerNorm, Linear, LmHead, Rope, RotaryEmbedding,
    create_causal_mask, rotate, split_rotary,
};
use crate::op::cat;
use crate::tensor::Tensor;

use super::attention::{SelfAttention, attend, join_heads};
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::layer::{DecoderLayer, LayerCall, call_layer};
use super::{Family, ForwardCall, Model, ModelOutput, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["gpt_neox"], build: GptNeoXForCausalLm::build };

/// What `GPTNeoXConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 50432,
    hidden_size: 6144,
    intermediate_size: 24576,
    num_hidden_layers: 44,
    num_attention_heads: 64,
    activation: "gelu",
    reads_attention_bias: false,
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    norm_key: "layer_norm_eps",
    norm_eps: 1e-5,
    ..DecoderDefaults::LLAMA
};

/// What GPT-NeoX's config has beyond a decoder's.
#[derive(Clone)]
struct Config {
    decoder: DecoderConfig,
    use_parallel_residual: bool,
    hidden_dropout: f64,
    options: RunOptions,
}

impl Config {
    fn read(fields: &Fields, options: &RunOptions) -> Result<Self, FieldError> {
        let mut decoder = DecoderConfig::read(fields, &DEFAULTS)?.turning_a_part(fields, "rotary_pct", 0.25)?;
        let theta = fields.positive("rotary_emb_base", DEFAULTS.rope_theta)?;
        decoder.rope = Rope::read(fields, theta, decoder.positions)?;
        decoder.qkv_bias = fields.flag("attention_bias", true)?;
        Ok(Self {
            decoder,
            use_parallel_residual: fields.flag("use_parallel_residual", true)?,
            hidden_dropout: fields.probability("hidden_dropout", 0.0)?,
            options: options.clone(),
        })
    }

    fn dropped(&self, dropout: &Module, hidden_states: &Tensor) -> Tensor {
        let _dropout = dropout.enter();
        hidden_states.dropout(self.hidden_dropout, self.options.drops_out())
    }
}

struct GptNeoXMlp {
    module: Module,
    dense_h_to_4h: Linear,
    dense_4h_to_h: Linear,
    act: Module,
    activation: Activation,
}

impl GptNeoXMlp {
    fn new(at: &Builder, config: &DecoderConfig) -> Self {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        Self {
            module: at.module(),
            dense_h_to_4h: Linear::new(&at.at("dense_h_to_4h"), hidden, inner, true),
            dense_4h_to_h: Linear::new(&at.at("dense_4h_to_h"), inner, hidden, true),
            act: at.at("act").module(),
            activation: config.activation,
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.dense_h_to_4h.forward(x);
        hidden_states = {
            let _act = self.act.enter();
            self.activation.forward(&hidden_states)
        };
        self.dense_4h_to_h.forward(&hidden_states)
    }
}

/// `apply_rotary_pos_emb`: both turned, then both joined with the rest of each head.
fn apply_rotary_pos_emb(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    let (cos, sin) = (cos.unsqueeze(1), sin.unsqueeze(1));
    let rotary_dim = cos.size(-1);
    let (q_rot, q_pass) = split_rotary(q, rotary_dim);
    let (k_rot, k_pass) = split_rotary(k, rotary_dim);
    let mut q_embed = rotate(&q_rot, &cos, &sin);
    let mut k_embed = rotate(&k_rot, &cos, &sin);
    q_embed = cat(&[&q_embed, &q_pass], 3);
    k_embed = cat(&[&k_embed, &k_pass], 3);
    (q_embed, k_embed)
}

struct GptNeoXAttention {
    module: Module,
    query_key_value: Linear,
    dense: Linear,
    config: Config,
}

impl GptNeoXAttention {
    fn new(at: &Builder, config: &Config) -> Self {
        let (hidden, bias) = (config.decoder.hidden_size, config.decoder.qkv_bias);
        Self {
            module: at.module(),
            query_key_value: Linear::new(&at.at("query_key_value"), hidden, 3 * hidden, bias),
            dense: Linear::new(&at.at("dense"), hidden, hidden, bias),
            config: config.clone(),
        }
    }
}

impl SelfAttention for GptNeoXAttention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let (rows, tokens, decoder) = (hidden_states.size(0), hidden_states.size(1), &self.config.decoder);
        let heads = decoder.num_attention_heads;
        let head_size = decoder.hidden_size / heads;
        let qkv = self.query_key_value.forward(hidden_states).view(&[rows, tokens, heads, 3 * head_size]);
        let qkv = qkv.transpose(1, 2);
        let [mut query_states, mut key_states, mut value_states] = qkv.split_last();
        (query_states, key_states) = apply_rotary_pos_emb(&query_states, &key_states, &call.cos, &call.sin);
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let (mut attn_output, attn_weights) = attend(states, call, decoder.scores(), &self.config.options);
        attn_output = join_heads(&attn_output);
        (self.dense.forward(&attn_output), attn_weights)
    }
}

struct GptNeoXLayer {
    module: Module,
    layer: usize,
    input_layernorm: LayerNorm,
    post_attention_layernorm: LayerNorm,
    post_attention_dropout: Module,
    post_mlp_dropout: Module,
    attention: GptNeoXAttention,
    mlp: GptNeoXMlp,
    config: Config,
}

impl GptNeoXLayer {
    fn new(at: &Builder, layer: usize, config: &Config) -> Self {
        let decoder = &config.decoder;
        let norm = |name| LayerNorm::new(&at.at(name), decoder.hidden_size, decoder.norm_eps);
        Self {
            module: at.module(),
            layer,
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            post_attention_dropout: at.at("post_attention_dropout").module(),
            post_mlp_dropout: at.at("post_mlp_dropout").module(),
            attention: GptNeoXAttention::new(&at.at("attention"), config),
            mlp: GptNeoXMlp::new(&at.at("mlp"), decoder),
            config: config.clone(),
        }
    }

    fn feed(&self, x: &Tensor) -> Tensor {
        let mut mlp_output = self.mlp.forward(&self.post_attention_layernorm.forward(x));
        mlp_output = self.config.dropped(&self.post_mlp_dropout, &mlp_output);
        mlp_output
    }
}

impl DecoderLayer for GptNeoXLayer {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, hidden_states: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let (mut attn_output, _weights) =
            self.attention.forward(&self.input_layernorm.forward(hidden_states), call, self.layer);
        attn_output = self.config.dropped(&self.post_attention_dropout, &attn_output);
        if self.config.use_parallel_residual {
            let mlp_output = self.feed(hidden_states);
            return &(&mlp_output + &attn_output) + hidden_states;
        }
        attn_output = &attn_output + hidden_states;
        let mlp_output = self.feed(&attn_output);
        &mlp_output + &attn_output
    }
}

struct GptNeoXModel {
    module: Module,
    embed_in: Embedding,
    emb_dropout: Module,
    layers: Vec<Rc<GptNeoXLayer>>,
    final_layer_norm: LayerNorm,
    rotary_emb: RotaryEmbedding,
    config: Config,
}

impl GptNeoXModel {
    fn new(at: &Builder, config: Config) -> Self {
        let decoder = &config.decoder;
        let sizes = [decoder.vocab_size, decoder.hidden_size];
        let layer = |layer: u64| Rc::new(GptNeoXLayer::new(&at.at("layers").element(layer), layer as usize, &config));
        Self {
            module: at.module(),
            embed_in: Embedding::of_head(&at.at("embed_in"), sizes, None, decoder.tie_word_embeddings),
            emb_dropout: at.at("emb_dropout").module(),
            layers: (0..decoder.num_hidden_layers).map(layer).collect(),
            final_layer_norm: LayerNorm::new(&at.at("final_layer_norm"), decoder.hidden_size, decoder.norm_eps),
            rotary_emb: RotaryEmbedding::new(&at.at("rotary_emb"), decoder.rotary_dim, &decoder.rope),
            config,
        }
    }

    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let options = &self.config.options;
        let inputs_embeds = options.require_input_grads(self.embed_in.forward(call.input_ids));
        let position_ids = call.position_ids_for(&inputs_embeds);
        let mask = create_causal_mask(call.mask_inputs(options.attention, &inputs_embeds, &position_ids));
        let mut hidden_states = self.config.dropped(&self.emb_dropout, &inputs_embeds);
        let (cos, sin) = self.rotary_emb.forward(hidden_states.dtype(), &position_ids);
        let (cache, decodes) = (call.cache.clone(), call.decodes());
        let layer_call = LayerCall { cos, sin, position_ids, mask, linear_mask: None, embedded: None, cache, decodes };
        for layer in &self.layers {
            hidden_states = call_layer(layer, &hidden_states, layer_call.clone(), options);
        }
        self.final_layer_norm.forward(&hidden_states)
    }
}

struct GptNeoXForCausalLm {
    module: Module,
    gpt_neox: GptNeoXModel,
    lm_head: LmHead,
}

impl GptNeoXForCausalLm {
    fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
        let config = Config::read(&model.config, options)?;
        let module = at.module();
        let at = &at.deviating(config.decoder.initializer_range);
        let (width, vocab_size) = (config.decoder.hidden_size, config.decoder.vocab_size);
        let is_tied = config.decoder.tie_word_embeddings;
        let gpt_neox = GptNeoXModel::new(&at.at("gpt_neox"), config);
        let lm_head = LmHead::new(&at.at("lm_head"), width, vocab_size, is_tied.then_some(&gpt_neox.embed_in));
        Ok(Box::new(Self { module, gpt_neox, lm_head: lm_head.of_file(ModelingFile::Later) }))
    }
}

impl Model for GptNeoXForCausalLm {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let hidden_states = self.gpt_neox.forward(call);
        let HeadOutput { loss, logits } = self.lm_head.forward(&hidden_states, &call.head(), |logits| logits);
        ModelOutput { loss, logits, cache: call.cache.clone(), router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.gpt_neox.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        self.lm_head.linear()
    }
}
