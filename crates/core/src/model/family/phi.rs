//! Phi-1 to Phi-2 (transformers/models/phi/modeling_phi.py): both branches from one layer norm, rotary embeddings on a part of each
//! head, biases everywhere, the head's too.

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module};
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{
    Activation, AttentionOutput, Embedding, HeadOutput, LayerNorm, Linear, LmHead, RotaryEmbedding,
    apply_rotary_pos_emb, create_causal_mask, split_rotary,
};
use crate::op::cat;
use crate::tensor::Tensor;

use super::attention::{Projections, SelfAttention, attend};
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::layer::{DecoderLayer, LayerCall, call_layer};
use super::{Family, ForwardCall, Model, ModelOutput, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["phi"], build: PhiForCausalLm::build };

/// What `PhiConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 51200,
    hidden_size: 2048,
    intermediate_size: 8192,
    num_hidden_layers: 24,
    activation: "gelu_new",
    qkv_bias: true,
    reads_attention_bias: false,
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    norm_key: "layer_norm_eps",
    norm_eps: 1e-5,
    ..DecoderDefaults::LLAMA
};

/// What Phi's config has beyond a decoder's.
#[derive(Clone)]
struct Config {
    decoder: DecoderConfig,
    resid_pdrop: f64,
    options: RunOptions,
}

impl Config {
    fn read(fields: &Fields, options: &RunOptions) -> Result<Self, FieldError> {
        let mut decoder =
            DecoderConfig::read(fields, &DEFAULTS)?.turning_a_part(fields, "partial_rotary_factor", 0.5)?;
        if decoder.tie_word_embeddings {
            let problem = "a tied head with a bias of its own is not simulated";
            return Err(FieldError::unsimulated("tie_word_embeddings", problem));
        }
        decoder.o_bias = true;
        decoder.qk_norm = fields.flag("qk_layernorm", false)?;
        decoder.embedding_dropout = fields.probability("embd_pdrop", 0.0)?;
        let resid_pdrop = fields.probability("resid_pdrop", 0.0)?;
        Ok(Self { decoder, resid_pdrop, options: options.clone() })
    }
}

struct PhiMlp {
    module: Module,
    activation_fn: Module,
    activation: Activation,
    fc1: Linear,
    fc2: Linear,
}

impl PhiMlp {
    fn new(at: &Builder, config: &DecoderConfig) -> Self {
        Self {
            module: at.module(),
            activation_fn: at.at("activation_fn").module(),
            activation: config.activation,
            fc1: Linear::new(&at.at("fc1"), config.hidden_size, config.intermediate_size, true),
            fc2: Linear::new(&at.at("fc2"), config.intermediate_size, config.hidden_size, true),
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.fc1.forward(x);
        hidden_states = {
            let _activation_fn = self.activation_fn.enter();
            self.activation.forward(&hidden_states)
        };
        self.fc2.forward(&hidden_states)
    }
}

struct PhiAttention {
    module: Module,
    projections: Projections,
    norms: Option<(LayerNorm, LayerNorm)>,
    config: Config,
}

impl PhiAttention {
    fn new(at: &Builder, config: &Config) -> Self {
        let decoder = &config.decoder;
        let width = decoder.hidden_size / decoder.num_attention_heads;
        let norm = |name| LayerNorm::new(&at.at(name), width, decoder.norm_eps);
        Self {
            module: at.module(),
            projections: Projections::new(at, decoder, "dense"),
            norms: decoder.qk_norm.then(|| (norm("q_layernorm"), norm("k_layernorm"))),
            config: config.clone(),
        }
    }
}

impl SelfAttention for PhiAttention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let decoder = &self.config.decoder;
        let [mut query_states, mut key_states, mut value_states] = self.projections.heads_first(hidden_states);
        if let Some((q_layernorm, k_layernorm)) = &self.norms {
            query_states = q_layernorm.forward(&query_states);
            key_states = k_layernorm.forward(&key_states);
        }
        // Variables of this function, as Python's: what they hold lives until it returns.
        let (mut query_rot, query_pass) = split_rotary(&query_states, decoder.rotary_dim);
        let (mut key_rot, key_pass) = split_rotary(&key_states, decoder.rotary_dim);
        (query_rot, key_rot) = apply_rotary_pos_emb(&query_rot, &key_rot, &call.cos, &call.sin);
        query_states = cat(&[&query_rot, &query_pass], 3);
        key_states = cat(&[&key_rot, &key_pass], 3);
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let (attn_output, attn_weights) = attend(states, call, decoder.scores(), &self.config.options);
        (self.projections.merge_heads(attn_output), attn_weights)
    }
}

struct PhiDecoderLayer {
    module: Module,
    layer: usize,
    self_attn: PhiAttention,
    mlp: PhiMlp,
    input_layernorm: LayerNorm,
    resid_dropout: Module,
    config: Config,
}

impl PhiDecoderLayer {
    fn new(at: &Builder, layer: usize, config: &Config) -> Self {
        let decoder = &config.decoder;
        Self {
            module: at.module(),
            layer,
            self_attn: PhiAttention::new(&at.at("self_attn"), config),
            mlp: PhiMlp::new(&at.at("mlp"), decoder),
            input_layernorm: LayerNorm::new(&at.at("input_layernorm"), decoder.hidden_size, decoder.norm_eps),
            resid_dropout: at.at("resid_dropout").module(),
            config: config.clone(),
        }
    }

    fn dropped(&self, hidden_states: &Tensor) -> Tensor {
        let _dropout = self.resid_dropout.enter();
        hidden_states.dropout(self.config.resid_pdrop, self.config.options.drops_out())
    }
}

impl DecoderLayer for PhiDecoderLayer {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let hidden_states = self.input_layernorm.forward(residual);
        let (mut attn_outputs, _weights) = self.self_attn.forward(&hidden_states, call, self.layer);
        attn_outputs = self.dropped(&attn_outputs);
        let feed_forward_hidden_states = self.dropped(&self.mlp.forward(&hidden_states));
        &(&attn_outputs + &feed_forward_hidden_states) + residual
    }
}

struct PhiModel {
    module: Module,
    embed_tokens: Embedding,
    layers: Vec<Rc<PhiDecoderLayer>>,
    rotary_emb: RotaryEmbedding,
    embed_dropout: Module,
    final_layernorm: LayerNorm,
    config: Config,
}

impl PhiModel {
    fn new(at: &Builder, config: Config) -> Self {
        let decoder = &config.decoder;
        let sizes = [decoder.vocab_size, decoder.hidden_size];
        let layer =
            |layer: u64| Rc::new(PhiDecoderLayer::new(&at.at("layers").element(layer), layer as usize, &config));
        Self {
            module: at.module(),
            embed_tokens: Embedding::of_head(&at.at("embed_tokens"), sizes, decoder.pad_token_id, false),
            layers: (0..decoder.num_hidden_layers).map(layer).collect(),
            rotary_emb: RotaryEmbedding::new(&at.at("rotary_emb"), decoder.rotary_dim, &decoder.rope),
            embed_dropout: at.at("embed_dropout").module(),
            final_layernorm: LayerNorm::new(&at.at("final_layernorm"), decoder.hidden_size, decoder.norm_eps),
            config,
        }
    }

    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let options = &self.config.options;
        let mut inputs_embeds = options.require_input_grads(self.embed_tokens.forward(call.input_ids));
        let position_ids = call.position_ids_for(&inputs_embeds);
        let mask = create_causal_mask(call.mask_inputs(options.attention, &inputs_embeds, &position_ids));
        inputs_embeds = {
            let _dropout = self.embed_dropout.enter();
            inputs_embeds.dropout(self.config.decoder.embedding_dropout, options.drops_out())
        };
        let mut hidden_states = inputs_embeds.clone();
        let (cos, sin) = self.rotary_emb.forward(hidden_states.dtype(), &position_ids);
        let (cache, decodes) = (call.cache.clone(), call.decodes());
        let layer_call = LayerCall { cos, sin, position_ids, mask, linear_mask: None, embedded: None, cache, decodes };
        for layer in &self.layers {
            hidden_states = call_layer(layer, &hidden_states, layer_call.clone(), options);
        }
        self.final_layernorm.forward(&hidden_states)
    }
}

struct PhiForCausalLm {
    module: Module,
    model: PhiModel,
    lm_head: LmHead,
}

impl PhiForCausalLm {
    fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
        let config = Config::read(&model.config, options)?;
        let module = at.module();
        let at = &at.deviating(config.decoder.initializer_range);
        let (width, vocab_size) = (config.decoder.hidden_size, config.decoder.vocab_size);
        let model = PhiModel::new(&at.at("model"), config);
        let lm_head = LmHead::with_bias(&at.at("lm_head"), width, vocab_size).of_file(ModelingFile::Later);
        Ok(Box::new(Self { module, model, lm_head }))
    }
}

impl Model for PhiForCausalLm {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let hidden_states = self.model.forward(call);
        let HeadOutput { loss, logits } = self.lm_head.forward(&hidden_states, &call.head(), |logits| logits);
        ModelOutput { loss, logits, cache: call.cache.clone(), router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.model.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        self.lm_head.linear()
    }
}
