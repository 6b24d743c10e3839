//! ModernBERT's embeddings and layers.

use std::rc::Rc;

use crate::building::{Builder, Module};
use crate::dtype::DType;
use crate::model::nn::{AttentionOutput, Embedding, LayerNorm, LayerType, Linear, Rope, RotaryEmbedding, rotate_half};
use crate::op::arange;
use crate::tensor::Tensor;

use super::super::ForwardCall;
use super::super::encoder::{Encoder, EncoderLayer, attend, bidirectional_mask, bidirectional_window_mask, run_layers};
use super::config::Config;

pub(super) struct ModernBertEmbeddings {
    module: Module,
    pub tok_embeddings: Embedding,
    norm: LayerNorm,
    drop: Module,
    config: Rc<Config>,
}

impl ModernBertEmbeddings {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        let (count, width) = (config.vocab_size, config.hidden_size);
        Self {
            module: at.module(),
            tok_embeddings: Embedding::new(&at.at("tok_embeddings"), count, width, config.pad_token_id),
            norm: config.norm(&at.at("norm")),
            drop: at.at("drop").module(),
            config: Rc::clone(config),
        }
    }

    fn forward(&self, input_ids: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let normed = {
            let embedded = self.config.options.require_input_grads(self.tok_embeddings.forward(input_ids));
            self.norm.forward(&embedded)
        };
        self.config.dropped(&self.drop, &normed, self.config.embedding_dropout)
    }
}

struct ModernBertMlp {
    module: Module,
    wi: Linear,
    act: Module,
    drop: Module,
    wo: Linear,
    config: Rc<Config>,
}

impl ModernBertMlp {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        let (hidden, inner, bias) = (config.hidden_size, config.intermediate_size, config.mlp_bias);
        Self {
            module: at.module(),
            wi: Linear::new(&at.at("Wi"), hidden, 2 * inner, bias),
            act: at.at("act").module(),
            drop: at.at("drop").module(),
            wo: Linear::new(&at.at("Wo"), inner, hidden, bias),
            config: Rc::clone(config),
        }
    }

    fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let [input, gate] = self.wi.forward(hidden_states).split_last::<2>();
        let dropped = {
            let gated = {
                let activated = {
                    let _act = self.act.enter();
                    self.config.activation.forward(&input)
                };
                &activated * &gate
            };
            self.config.dropped(&self.drop, &gated, self.config.mlp_dropout)
        };
        self.wo.forward(&dropped)
    }
}

/// `x.float() * cos + rotate_half(x.float()) * sin`
fn rotate_in_float(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
    let kept = {
        let float = x.float();
        &float * cos
    };
    let turned = {
        let rotated = {
            let float = x.float();
            rotate_half(&float)
        };
        &rotated * sin
    };
    &kept + &turned
}

/// `apply_rotary_pos_emb` on [batch, heads, tokens, head_dim] queries and keys.
fn apply_rotary_pos_emb(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    let dtype = q.dtype();
    let (cos, sin) = (cos.unsqueeze(1), sin.unsqueeze(1));
    let q_embed = rotate_in_float(q, &cos, &sin);
    let k_embed = rotate_in_float(k, &cos, &sin);
    (q_embed.to(dtype), k_embed.to(dtype))
}

/// What a layer is given: the mask and the rotary tables of its type.
struct LayerCall {
    attention_mask: Option<Tensor>,
    position_embeddings: (Tensor, Tensor),
}

struct ModernBertAttention {
    module: Module,
    wqkv: Linear,
    wo: Linear,
    out_drop: Module,
    config: Rc<Config>,
}

impl ModernBertAttention {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        let (hidden, bias) = (config.hidden_size, config.attention_bias);
        Self {
            module: at.module(),
            wqkv: Linear::new(&at.at("Wqkv"), hidden, 3 * hidden, bias),
            wo: Linear::new(&at.at("Wo"), hidden, hidden, bias),
            out_drop: at.at("out_drop").module(),
            config: Rc::clone(config),
        }
    }

    fn forward(&self, hidden_states: &Tensor, call: &LayerCall) -> AttentionOutput {
        let _module = self.module.enter();
        let (rows, tokens, heads) = (hidden_states.size(0), hidden_states.size(1), self.config.num_attention_heads);
        let qkv = self.wqkv.forward(hidden_states).view(&[rows, tokens, 3, heads, self.config.head_dim()]);
        let [mut query_states, mut key_states, value_states] =
            qkv.unbind_at::<3>(2).map(|states| states.transpose(1, 2));
        let (cos, sin) = &call.position_embeddings;
        (query_states, key_states) = apply_rotary_pos_emb(&query_states, &key_states, cos, sin);
        let dropout = self.config.attention_dropout;
        let (mut attn_output, attn_weights) = attend(
            [&query_states, &key_states, &value_states],
            call.attention_mask.as_ref(),
            (dropout, Some(DType::Float32)),
            &self.config.options,
        );
        attn_output = attn_output.reshape(&[rows, tokens, self.config.hidden_size]).contiguous();
        attn_output = {
            let projected = self.wo.forward(&attn_output);
            self.config.dropped(&self.out_drop, &projected, dropout)
        };
        (attn_output, attn_weights)
    }
}

struct ModernBertEncoderLayer {
    module: Module,
    /// The first layer has none: its states come from a norm.
    attn_norm: Option<LayerNorm>,
    attn: ModernBertAttention,
    mlp_norm: LayerNorm,
    mlp: ModernBertMlp,
    attention_type: LayerType,
}

impl ModernBertEncoderLayer {
    fn new(at: &Builder, layer_idx: u64, config: &Rc<Config>) -> Self {
        Self {
            module: at.module(),
            attn_norm: (layer_idx > 0).then(|| config.norm(&at.at("attn_norm"))),
            attn: ModernBertAttention::new(&at.at("attn"), config),
            mlp_norm: config.norm(&at.at("mlp_norm")),
            mlp: ModernBertMlp::new(&at.at("mlp"), config),
            attention_type: config.layer_types[layer_idx as usize],
        }
    }
}

impl EncoderLayer for ModernBertEncoderLayer {
    type Call = LayerCall;

    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, hidden_states: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let (attn_output, _weights) = {
            let normed = match &self.attn_norm {
                Some(attn_norm) => attn_norm.forward(hidden_states),
                None => hidden_states.clone(),
            };
            self.attn.forward(&normed, call)
        };
        let hidden_states = hidden_states + &attn_output;
        let mlp_output = {
            let normed = self.mlp_norm.forward(&hidden_states);
            self.mlp.forward(&normed)
        };
        &hidden_states + &mlp_output
    }
}

pub(super) struct ModernBertModel {
    module: Module,
    pub embeddings: ModernBertEmbeddings,
    layers: Vec<Rc<ModernBertEncoderLayer>>,
    final_norm: LayerNorm,
    rotary_embs: Vec<(LayerType, RotaryEmbedding)>,
    pub config: Rc<Config>,
}

impl ModernBertModel {
    pub(super) fn new(at: &Builder, config: &Rc<Config>) -> Self {
        let layer = |layer| Rc::new(ModernBertEncoderLayer::new(&at.at("layers").element(layer), layer, config));
        let rotary = |(layer_type, rope): &(LayerType, Rope)| {
            (*layer_type, RotaryEmbedding::new(&at.at("rotary_emb"), config.head_dim(), rope))
        };
        Self {
            module: at.module(),
            embeddings: ModernBertEmbeddings::new(&at.at("embeddings"), config),
            layers: (0..config.layer_types.len() as u64).map(layer).collect(),
            final_norm: config.norm(&at.at("final_norm")),
            rotary_embs: config.rotary.iter().map(rotary).collect(),
            config: Rc::clone(config),
        }
    }
}

impl Encoder for ModernBertModel {
    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let options = &self.config.options;
        let position_ids = arange(call.input_ids.context(), call.input_ids.size(1)).unsqueeze(0);
        let embedded = self.embeddings.forward(call.input_ids);
        let full_attention = bidirectional_mask(&embedded, call, options);
        let sliding_attention = bidirectional_window_mask(&embedded, call, self.config.sliding_window, options);
        // transformers goes through a set of names, whose order is Python's hash's.
        let tables = |(layer_type, rotary_emb): &(LayerType, RotaryEmbedding)| {
            (*layer_type, rotary_emb.forward(embedded.dtype(), &position_ids))
        };
        let position_embeddings: Vec<_> = self.rotary_embs.iter().map(tables).collect();
        let call_of = |layer: &ModernBertEncoderLayer| {
            let of_type = |(layer_type, _): &&(LayerType, _)| *layer_type == layer.attention_type;
            let mask = match layer.attention_type {
                LayerType::SlidingAttention => &sliding_attention,
                _ => &full_attention,
            };
            let (_, tables) = position_embeddings.iter().find(of_type).unwrap_or(&position_embeddings[0]);
            LayerCall { attention_mask: mask.clone(), position_embeddings: tables.clone() }
        };
        let hidden_states = run_layers(&self.layers, &embedded, call_of, options);
        self.final_norm.forward(&hidden_states)
    }
}
