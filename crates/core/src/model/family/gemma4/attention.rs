//! `Gemma4TextAttention`, which Gemma 3n shares: norms on queries, keys and values, and layers that attend to the keys and values of an
//! earlier one.

use std::cell::RefCell;

use crate::building::{Builder, Module};
use crate::job::Attention;
use crate::model::nn::{AttentionConfig, AttentionOutput, LayerType, Linear, attention_forward, rotate};
use crate::tensor::Tensor;

use super::super::RunOptions;
use super::super::decoder::DecoderConfig;
use super::super::gemma2::eager_attention_forward;
use super::super::layer::LayerCall;
use super::GemmaPowNorm;

/// Keys and values of the last layer of each type that has its own: `shared_kv_states`.
#[derive(Default)]
pub(crate) struct SharedKeys(RefCell<Vec<(LayerType, [Tensor; 2])>>);

impl SharedKeys {
    fn store(&self, layer_type: LayerType, states: [Tensor; 2]) {
        let mut stored = self.0.borrow_mut();
        match stored.iter_mut().find(|(known, _)| *known == layer_type) {
            Some(slot) => slot.1 = states,
            None => stored.push((layer_type, states)),
        }
    }

    fn of(&self, layer_type: LayerType) -> Option<[Tensor; 2]> {
        self.0.borrow().iter().find(|(known, _)| *known == layer_type).map(|(_, states)| states.clone())
    }
}

/// What differs from layer to layer.
#[derive(Clone, Copy)]
pub(crate) struct AttentionShape {
    pub head_dim: u64,
    pub key_value_heads: u64,
    pub layer_type: LayerType,
    pub keys: KeyRole,
    /// Whether values are what keys are before their norm.
    pub values_are_keys: bool,
    /// Whether keys are all made before values, as Gemma 3n's are.
    pub keys_first: bool,
}

/// Whose keys and values a layer attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRole {
    Own,
    /// Its own, which later layers attend to.
    OwnAndStored,
    Shared,
}

impl KeyRole {
    /// Of the layer `at` among layers of these types, of which those from `first_shared` on share.
    pub(crate) fn of_layer(at: usize, types: &[LayerType], first_shared: usize) -> Self {
        if at >= first_shared {
            return Self::Shared;
        }
        let last = types[..first_shared].iter().rposition(|other| *other == types[at]);
        if last == Some(at) { Self::OwnAndStored } else { Self::Own }
    }
}

struct OwnKeys {
    k_proj: Linear,
    v_proj: Option<Linear>,
    k_norm: GemmaPowNorm,
    v_norm: GemmaPowNorm,
}

impl OwnKeys {
    /// Modules in the order in which Gemma 4 has them, or Gemma 3n.
    fn new(at: &Builder, config: &DecoderConfig, shape: AttentionShape) -> Self {
        let width = shape.key_value_heads * shape.head_dim;
        let project = |name: &str| Linear::new(&at.at(name), config.hidden_size, width, config.qkv_bias);
        let norms = || {
            let k_norm = GemmaPowNorm::new(&at.at("k_norm"), shape.head_dim, config.norm_eps);
            (k_norm, GemmaPowNorm::without_scale(&at.at("v_norm"), config.norm_eps))
        };
        let projections = || (project("k_proj"), (!shape.values_are_keys).then(|| project("v_proj")));
        let ((k_proj, v_proj), (k_norm, v_norm)) = if shape.keys_first {
            let projections = projections();
            (projections, norms())
        } else {
            let norms = norms();
            (projections(), norms)
        };
        Self { k_proj, v_proj, k_norm, v_norm }
    }
}

pub(crate) struct SharingAttention {
    module: Module,
    q_proj: Linear,
    q_norm: GemmaPowNorm,
    own: Option<OwnKeys>,
    o_proj: Linear,
    layer: usize,
    shape: AttentionShape,
    config: AttentionConfig,
    dropout: f64,
    options: RunOptions,
}

impl SharingAttention {
    pub(crate) fn new(
        at: &Builder,
        layer: usize,
        config: &DecoderConfig,
        shape: AttentionShape,
        options: &RunOptions,
    ) -> Self {
        let (hidden, width) = (config.hidden_size, config.num_attention_heads * shape.head_dim);
        Self {
            module: at.module(),
            q_proj: Linear::new(&at.at("q_proj"), hidden, width, config.qkv_bias),
            q_norm: GemmaPowNorm::new(&at.at("q_norm"), shape.head_dim, config.norm_eps),
            own: (shape.keys != KeyRole::Shared).then(|| OwnKeys::new(at, config, shape)),
            o_proj: Linear::new(&at.at("o_proj"), width, hidden, config.o_bias),
            layer,
            shape,
            config: AttentionConfig {
                implementation: options.attention,
                num_key_value_groups: config.num_attention_heads / shape.key_value_heads,
                dropout: 0.0,
                is_causal: true,
                scale: 1.0,
            },
            dropout: config.attention_dropout,
            options: options.clone(),
        }
    }

    pub(crate) fn forward(&self, hidden_states: &Tensor, call: &LayerCall, shared: &SharedKeys) -> AttentionOutput {
        let _module = self.module.enter();
        let mut query_states = self.split_heads(&self.q_proj.forward(hidden_states));
        query_states = self.q_norm.forward(&query_states);
        query_states = turn(&query_states, call);
        query_states = query_states.transpose(1, 2);
        let [mut key_states, mut value_states] = match &self.own {
            Some(own) if self.shape.keys_first => self.keys_first(own, hidden_states, call),
            Some(own) => self.keys_and_values(own, hidden_states, call),
            None => shared.of(self.shape.layer_type).unwrap_or_else(|| [query_states.clone(), query_states.clone()]),
        };
        if let (Some(cache), Some(_)) = (&call.cache, &self.own) {
            (key_states, value_states) = cache.update(self.layer, &key_states, &value_states);
        }
        if self.shape.keys == KeyRole::OwnAndStored {
            shared.store(self.shape.layer_type, [key_states.clone(), value_states.clone()]);
        }
        let (mut attn_output, attn_weights) = self.attend(&query_states, &key_states, &value_states, call);
        let (rows, tokens) = (hidden_states.size(0), hidden_states.size(1));
        attn_output = attn_output.reshape(&[rows, tokens, attn_output.size(2) * attn_output.size(3)]).contiguous();
        (self.o_proj.forward(&attn_output), attn_weights)
    }

    fn split_heads(&self, projected: &Tensor) -> Tensor {
        let head_dim = self.shape.head_dim;
        projected.view(&[projected.size(0), projected.size(1), projected.size(2) / head_dim, head_dim])
    }

    fn keys_and_values(&self, own: &OwnKeys, hidden_states: &Tensor, call: &LayerCall) -> [Tensor; 2] {
        let mut key_states = self.split_heads(&own.k_proj.forward(hidden_states));
        let mut value_states = match &own.v_proj {
            Some(v_proj) => self.split_heads(&v_proj.forward(hidden_states)),
            None => key_states.clone(),
        };
        key_states = own.k_norm.forward(&key_states);
        key_states = turn(&key_states, call);
        key_states = key_states.transpose(1, 2);
        value_states = own.v_norm.forward(&value_states);
        [key_states, value_states.transpose(1, 2)]
    }

    /// The same in Gemma 3n's order.
    fn keys_first(&self, own: &OwnKeys, hidden_states: &Tensor, call: &LayerCall) -> [Tensor; 2] {
        let mut key_states = self.split_heads(&own.k_proj.forward(hidden_states));
        key_states = own.k_norm.forward(&key_states);
        key_states = turn(&key_states, call);
        key_states = key_states.transpose(1, 2);
        let projected = own.v_proj.as_ref().map(|v_proj| self.split_heads(&v_proj.forward(hidden_states)));
        let value_states =
            projected.map_or_else(|| key_states.clone(), |values| own.v_norm.forward(&values).transpose(1, 2));
        [key_states, value_states]
    }

    fn attend(&self, query: &Tensor, key: &Tensor, value: &Tensor, call: &LayerCall) -> AttentionOutput {
        let (mask, position_ids) = (call.mask.as_ref(), Some(&call.position_ids));
        let config = AttentionConfig { dropout: self.options.active_call(self.dropout), ..self.config };
        if self.options.attention == Attention::Eager {
            eager_attention_forward(query, key, value, mask, config, None)
        } else {
            (attention_forward(query, key, value, (mask, position_ids), config), None)
        }
    }
}

/// `apply_rotary_pos_emb(x, cos, sin, unsqueeze_dim=2)` of [batch, tokens, heads, head_dim].
fn turn(x: &Tensor, call: &LayerCall) -> Tensor {
    let (cos, sin) = (call.cos.unsqueeze(2), call.sin.unsqueeze(2));
    rotate(x, &cos, &sin)
}
