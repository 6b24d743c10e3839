//! Phi-3 and Phi-4 (transformers/models/phi3/modeling_phi3.py): Llama with fused projections, rotary embeddings on a part
//! of each head, dropout on the residual branches, and a window in some configs.

use std::rc::Rc;

use crate::building::{BuildError, Builder, LigerKernels, Mode, Module};
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{
    Activation, AttentionOutput, LayerType, Linear, RmsNorm, RopeKind, apply_partial_rotary_pos_emb,
};
use crate::op::liger_rope;
use crate::tensor::Tensor;

use super::attention::{attend, join_heads};
use super::decoder::{DecoderConfig, DecoderDefaults, SLIDING};
use super::layer::{DecoderLayer, LayerCall};
use super::llama::DecoderForCausalLm;
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["phi3"], build };

/// What `Phi3Config` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 32064,
    hidden_size: 3072,
    intermediate_size: 8192,
    reads_attention_bias: false,
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    norm_eps: 1e-5,
    pad_token_id: Some(32000),
    ..DecoderDefaults::LLAMA
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = Config::read(&model.config)?;
    let new_layer = |at: &Builder, layer, _: &DecoderConfig| Phi3DecoderLayer::new(at, layer, &config, options);
    Ok(Box::new(DecoderForCausalLm::with_layers(at, config.decoder.clone(), options, new_layer)))
}

/// What Phi-3's config has beyond a decoder's.
#[derive(Clone)]
struct Config {
    decoder: DecoderConfig,
    resid_pdrop: f64,
}

impl Config {
    fn read(fields: &Fields) -> Result<Self, FieldError> {
        let mut decoder = DecoderConfig::read(fields, &DEFAULTS)?;
        if let Some(window) = fields.optional_size("sliding_window")? {
            decoder.sliding_window = window;
            decoder.mask_types = SLIDING;
            decoder.layer_types = vec![LayerType::SlidingAttention; decoder.num_hidden_layers as usize].into();
        }
        // `convert_rope_params_to_dict`: older configs say su or yarn.
        if matches!(decoder.rope.kind, RopeKind::Yarn(_)) {
            decoder.rope = decoder.rope.into_long(fields, decoder.positions)?;
        }
        decoder = decoder.turning_a_part(fields, "partial_rotary_factor", 1.0)?;
        Ok(Self { decoder, resid_pdrop: fields.probability("resid_pdrop", 0.0)? })
    }
}

struct Phi3Mlp {
    module: Module,
    gate_up_proj: Linear,
    down_proj: Linear,
    activation_fn: Module,
    activation: Activation,
    mode: Rc<Mode>,
}

impl Phi3Mlp {
    fn new(at: &Builder, config: &DecoderConfig) -> Self {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        Self {
            module: at.module(),
            gate_up_proj: Linear::new(&at.at("gate_up_proj"), hidden, 2 * inner, false),
            down_proj: Linear::new(&at.at("down_proj"), inner, hidden, false),
            activation_fn: at.at("activation_fn").module(),
            activation: config.activation,
            mode: at.mode(),
        }
    }

    fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        if self.mode.liger_kernels() == LigerKernels::Layers {
            let mut up_states = self.gate_up_proj.forward(hidden_states);
            let gate;
            [gate, up_states] = up_states.split_last();
            return self.down_proj.forward(&gate.liger_act_mul(&up_states));
        }
        let [gate, mut up_states] = self.gate_up_proj.forward(hidden_states).split_last();
        // `up_states` is assigned when the product is there: its old memory lives until then, as Python's does.
        up_states = {
            let activated = {
                let _activation_fn = self.activation_fn.enter();
                self.activation.forward(&gate)
            };
            &up_states * &activated
        };
        self.down_proj.forward(&up_states)
    }
}

struct Phi3Attention {
    module: Module,
    o_proj: Linear,
    qkv_proj: Linear,
    config: Config,
    options: RunOptions,
}

impl Phi3Attention {
    fn new(at: &Builder, config: &Config, options: &RunOptions) -> Self {
        let hidden = config.decoder.hidden_size;
        let (query_width, key_value_width) = config.decoder.widths();
        Self {
            module: at.module(),
            o_proj: Linear::new(&at.at("o_proj"), query_width, hidden, false),
            qkv_proj: Linear::new(&at.at("qkv_proj"), hidden, query_width + 2 * key_value_width, false),
            config: config.clone(),
            options: options.clone(),
        }
    }

    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let (rows, tokens) = (hidden_states.size(0), hidden_states.size(1));
        let decoder = &self.config.decoder;
        let (query_width, key_value_width) = decoder.widths();
        let qkv = self.qkv_proj.forward(hidden_states);
        let parts = [
            0..query_width,
            query_width..query_width + key_value_width,
            query_width + key_value_width..query_width + 2 * key_value_width,
        ]
        .map(|range| qkv.slice(2, range));
        let [mut query_states, mut key_states, mut value_states] = parts
            .map(|part| part.view(&[rows, tokens, part.size(-1) / decoder.head_dim, decoder.head_dim]).transpose(1, 2));
        (query_states, key_states) = if self.options.mode.liger_kernels() == LigerKernels::Off {
            apply_partial_rotary_pos_emb(&query_states, &key_states, &call.cos, &call.sin)
        } else {
            liger_rope(&query_states, &key_states, &call.cos, &call.sin)
        };
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let (mut attn_output, attn_weights) = attend(states, call, decoder.scores(), &self.options);
        attn_output = join_heads(&attn_output);
        (self.o_proj.forward(&attn_output), attn_weights)
    }
}

struct Phi3DecoderLayer {
    module: Module,
    layer: usize,
    self_attn: Phi3Attention,
    mlp: Phi3Mlp,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
    resid_attn_dropout: Module,
    resid_mlp_dropout: Module,
    resid_pdrop: f64,
    options: RunOptions,
}

impl Phi3DecoderLayer {
    fn new(at: &Builder, layer: usize, config: &Config, options: &RunOptions) -> Self {
        let norm = |name| RmsNorm::new(&at.at(name), config.decoder.hidden_size, config.decoder.norm_eps);
        Self {
            module: at.module(),
            layer,
            self_attn: Phi3Attention::new(&at.at("self_attn"), config, options),
            mlp: Phi3Mlp::new(&at.at("mlp"), &config.decoder),
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            resid_attn_dropout: at.at("resid_attn_dropout").module(),
            resid_mlp_dropout: at.at("resid_mlp_dropout").module(),
            resid_pdrop: config.resid_pdrop,
            options: options.clone(),
        }
    }

    fn dropped(&self, dropout: &Module, hidden_states: &Tensor) -> Tensor {
        let _dropout = dropout.enter();
        hidden_states.dropout(self.resid_pdrop, self.options.drops_out())
    }
}

impl DecoderLayer for Phi3DecoderLayer {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.input_layernorm.forward(residual);
        let (attn_output, _weights) = self.self_attn.forward(&hidden_states, call, self.layer);
        hidden_states = attn_output;
        hidden_states = residual + &self.dropped(&self.resid_attn_dropout, &hidden_states);
        let residual = hidden_states.clone();
        hidden_states = self.post_attention_layernorm.forward(&hidden_states);
        hidden_states = self.mlp.forward(&hidden_states);
        &residual + &self.dropped(&self.resid_mlp_dropout, &hidden_states)
    }
}
