//! T5's attention, to whose scores a learned bias of the distance is added.

use std::rc::Rc;

use super::Config;
use crate::building::{Builder, Module};
use crate::dtype::DType;
use crate::family::seq2seq::attention::attend_eagerly;
use crate::job::Attention;
use crate::model::nn::{Embedding, KvCache, Linear};
use crate::op::{AttentionCall, arange, scaled_dot_product_attention, zeros};
use crate::tensor::Tensor;

/// How an attention is called.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub mask: Option<&'a Tensor>,
    /// The encoder's states, which the decoder attends to.
    pub key_value_states: Option<&'a Tensor>,
    /// That of the layers before.
    pub position_bias: Option<&'a Tensor>,
    /// A cache and the place in it.
    pub cache: Option<(&'a KvCache, usize)>,
}

/// What it returns.
pub(super) struct Attended {
    pub output: Tensor,
    pub position_bias: Tensor,
    /// Only the eager form has them.
    pub weights: Option<Tensor>,
}

pub(super) struct T5Attention {
    module: Module,
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    relative_attention_bias: Option<Embedding>,
    is_decoder: bool,
    is_causal: bool,
    config: Rc<Config>,
}

/// Which of the attentions of a block.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub is_decoder: bool,
    pub is_cross: bool,
    pub has_relative_attention_bias: bool,
}

impl T5Attention {
    pub(super) fn new(at: &Builder, config: &Rc<Config>, place: Place) -> Self {
        let (width, inner) = (config.d_model, config.num_heads * config.d_kv);
        let project = |name| Linear::new(&at.at(name), width, inner, false);
        Self {
            module: at.module(),
            q: project("q"),
            k: project("k"),
            v: project("v"),
            o: Linear::new(&at.at("o"), inner, width, false),
            relative_attention_bias: place.has_relative_attention_bias.then(|| {
                let at = at.at("relative_attention_bias");
                Embedding::new(&at, config.relative_attention_num_buckets, config.num_heads, None)
            }),
            is_decoder: place.is_decoder,
            is_causal: place.is_decoder && !place.is_cross,
            config: Rc::clone(config),
        }
    }

    /// `projection(states).view(hidden_shape).transpose(1, 2)`
    fn project(&self, projection: &Linear, states: &Tensor) -> Tensor {
        let projected = projection.forward(states);
        projected.view(&[states.size(0), states.size(1), self.config.num_heads, self.config.d_kv]).transpose(1, 2)
    }

    pub(super) fn forward(&self, hidden_states: &Tensor, call: &Call) -> Attended {
        let _module = self.module.enter();
        let seen = call.cache.and_then(|(cache, at)| cache.layers().get(&at).map(|layer| layer.seen)).unwrap_or(0);
        let query_states = self.project(&self.q, hidden_states);
        let (key_states, value_states) = self.keys_and_values(hidden_states, call, seen);
        let seen = if call.key_value_states.is_some() { 0 } else { seen };
        let position_bias = match call.position_bias {
            Some(position_bias) => position_bias.clone(),
            None => self.make_bias(&query_states, key_states.size(2), seen),
        };
        let states = [&query_states, &key_states, &value_states];
        let (attn_output, weights) = match self.config.options.attention {
            Attention::Eager => {
                let dropout = self.config.options.active_call(self.config.dropout_rate);
                attend_eagerly(states, [Some(&position_bias), call.mask], (dropout, 1.0))
            }
            _ => (self.attend(states, call.mask, &position_bias), None),
        };
        let (rows, tokens) = (hidden_states.size(0), hidden_states.size(1));
        let attn_output = attn_output.reshape(&[rows, tokens, self.config.num_heads * self.config.d_kv]);
        Attended { output: self.o.forward(&attn_output), position_bias, weights }
    }

    /// Those of the encoder's states are projected once for all tokens.
    fn keys_and_values(&self, hidden_states: &Tensor, call: &Call, seen: u64) -> (Tensor, Tensor) {
        if let (Some((cache, at)), Some(_), 1..) = (call.cache, call.key_value_states, seen) {
            let layer = cache.layers()[&at].clone();
            return (layer.keys, layer.values);
        }
        let states = call.key_value_states.unwrap_or(hidden_states);
        let (keys, values) = (self.project(&self.k, states), self.project(&self.v, states));
        match call.cache {
            Some((cache, at)) => cache.update(at, &keys, &values),
            None => (keys, values),
        }
    }

    fn make_bias(&self, query_states: &Tensor, keys: u64, seen: u64) -> Tensor {
        let queries = query_states.size(2);
        let Some(table) = &self.relative_attention_bias else {
            let sizes = [1, self.config.num_heads, queries, keys];
            let nothing = zeros(query_states.context(), &sizes, query_states.dtype());
            let trains = self.config.options.checkpoints_layers() && query_states.context().is_grad_enabled();
            return if trains { nothing.into_parameter() } else { nothing };
        };
        let context = query_states.context();
        let context_position = {
            let positions = arange(context, queries);
            positions.add_int(seen)
        };
        let memory_position = arange(context, keys);
        let relative_position = &memory_position.unsqueeze(0) - &context_position.unsqueeze(1);
        let relative_position_bucket = self.bucket_of(&relative_position);
        let values = table.forward(&relative_position_bucket);
        values.unsqueeze(0).permute([0, 3, 1, 2])
    }

    /// `_relative_position_bucket`: near distances have one each, far ones share them.
    fn bucket_of(&self, relative_position: &Tensor) -> Tensor {
        let int = DType::Int64;
        let (behind, distance) = if self.is_decoder {
            let least = relative_position.binary("minimum.default", &relative_position.zeros_like(), int);
            (None, least.map("neg.default", int))
        } else {
            let is_behind = relative_position.gt_number(0.0);
            let behind = run_each(is_behind, [("_to_copy.default", int), ("mul.Tensor", int), ("add.Tensor", int)]);
            (Some(behind), relative_position.abs_int())
        };
        let is_small = distance.lt_number(1.0);
        let float = DType::Float32;
        let shares =
            ["_to_copy.default", "div.Tensor", "log.default", "div.Tensor", "mul.Tensor"].map(|op| (op, float));
        let mut if_large =
            run_each(run_each(distance.clone(), shares), [("_to_copy.default", int), ("add.Tensor", int)]);
        if_large = {
            let most = if_large.map("full_like.default", int);
            if_large.binary("minimum.default", &most, int)
        };
        let bucket = is_small.binary("where.self", &if_large, int);
        // What lies behind is added in place.
        behind.unwrap_or_else(|| bucket.map("add.Tensor", int))
    }

    /// `create_position_bias_mask` (integrations/sdpa_attention.py), and SDPA with it.
    fn attend(&self, [query, key, value]: [&Tensor; 3], mask: Option<&Tensor>, position_bias: &Tensor) -> Tensor {
        let lowest = key.dtype().lowest();
        let (queries, keys) = (query.size(2), key.size(2));
        let mut _causal_mask = None;
        let position_bias_mask = match mask {
            Some(mask) => mask.choose_or_number(position_bias, lowest),
            None if self.is_causal && queries > 1 => {
                let causal_mask = {
                    let (rows, columns) = (arange(query.context(), queries), arange(query.context(), keys));
                    rows.unsqueeze(1).ge_tensor(&columns.unsqueeze(0)).view(&[1, 1, queries, keys])
                };
                let position_bias_mask = causal_mask.choose_or_number(position_bias, lowest);
                _causal_mask = Some(causal_mask);
                position_bias_mask
            }
            None => position_bias.clone(),
        };
        let call = AttentionCall {
            mask: Some(&position_bias_mask),
            dropout: self.config.options.active_call(self.config.dropout_rate),
            is_causal: false,
            scale: 1.0,
            enable_gqa: false,
            backend: self.config.options.attention,
        };
        let attn_output = scaled_dot_product_attention(query, key, value, call);
        attn_output.transpose(1, 2).contiguous()
    }
}

/// One op after the other, each of what the one before made, which then goes.
fn run_each<const N: usize>(mut x: Tensor, ops: [(&'static str, DType); N]) -> Tensor {
    for (op, dtype) in ops {
        x = x.map(op, dtype);
    }
    x
}
