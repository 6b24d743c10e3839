//! The generic decoder's attention: projections in one or three, norms and rotary embeddings as the type has them, and the
//! three ways in which scores are computed.

use crate::building::{Builder, Module};
use crate::dtype::DType;
use crate::job::Attention;
use crate::model::family::RunOptions;
use crate::model::family::attention::eager_attention_forward;
use crate::model::family::layer::LayerCall;
use crate::model::nn::{
    AttentionConfig, AttentionOutput, Linear, apply_partial_rotary_pos_emb, apply_rotary_pos_emb, repeat_kv,
    sdpa_attention_forward,
};
use crate::op::{UNTOLD, cat, full};
use crate::tensor::Tensor;

use super::block::Norm;
use super::config::GenericConfig;
use super::shape::{Positions, QkNorm, Scores};

pub(super) struct GenericAttention {
    module: Module,
    qkv: Vec<Linear>,
    o_proj: Linear,
    norms: Option<(Norm, Norm)>,
    /// The causal mask of all positions, where each layer keeps one.
    _mask: Option<Tensor>,
    config: GenericConfig,
    options: RunOptions,
}

impl GenericAttention {
    pub(super) fn new(at: &Builder, config: &GenericConfig, options: &RunOptions) -> Self {
        let (hidden, shape) = (config.hidden_size, &config.shape);
        let (query_width, key_value_width) = config.widths();
        let module = at.module();
        let linear = |name: &str, width| Linear::new(&at.at(name), hidden, width, shape.qkv_bias);
        let qkv = match shape.names.qkv {
            [fused] => vec![linear(fused, query_width + 2 * key_value_width)],
            names => {
                let widths = [query_width, key_value_width, key_value_width];
                names.iter().zip(widths).map(|(name, width)| linear(name, width)).collect()
            }
        };
        let norm = |name: &str| Norm::of_heads(&at.at(name), config);
        Self {
            module,
            qkv,
            o_proj: Linear::new(&at.at(shape.names.o), query_width, hidden, shape.o_bias),
            norms: (shape.qk_norm != QkNorm::Off).then(|| (norm("q_norm"), norm("k_norm"))),
            _mask: (shape.scores == Scores::Float32Masked)
                .then(|| at.buffer(&[1, 1, config.positions, config.positions], DType::Bool, Vec::new)),
            config: config.clone(),
            options: options.clone(),
        }
    }

    pub(super) fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let (batch, tokens) = (hidden_states.size(0), hidden_states.size(1));
        let [mut query, mut key, mut value] = self.project_qkv(hidden_states);
        if let Positions::Rotary(rotary) = self.config.shape.positions {
            let apply = if rotary.joins { apply_partial_rotary_pos_emb } else { apply_rotary_pos_emb };
            let dtype = query.dtype();
            let table = |table: &Tensor| if rotary.interleaves { doubled_half(table) } else { table.clone() };
            let (cos, sin) = (table(&call.cos), table(&call.sin));
            if rotary.in_float32 {
                let (turned_query, turned_key) = apply(&query.float(), &key.float(), &cos, &sin);
                (query, key) = (turned_query.to(dtype), turned_key.to(dtype));
            } else {
                (query, key) = apply(&query, &key, &cos, &sin);
            }
        }
        if let Some(cache) = &call.cache {
            (key, value) = cache.update(layer, &key, &value);
        }
        let (mut attn_output, attn_weights) = self.attend(&query, &key, &value, call.mask.as_ref());
        attn_output = attn_output.reshape(&[batch, tokens, attn_output.size(2) * attn_output.size(3)]).contiguous();
        (self.o_proj.forward(&attn_output), attn_weights)
    }

    /// Query, key and value, [batch, heads, tokens, head_dim] each.
    fn project_qkv(&self, hidden_states: &Tensor) -> [Tensor; 3] {
        let (query_width, key_value_width) = self.config.widths();
        let [query, key, value] = match self.qkv.as_slice() {
            [fused] if query_width == key_value_width => fused.forward(hidden_states).split_last(),
            [fused] => {
                let joined = fused.forward(hidden_states);
                [query_width, key_value_width, key_value_width].map(|width| joined.slice_any(2, width))
            }
            separate => [0, 1, 2].map(|at| separate[at].forward(hidden_states)),
        };
        let (query_norm, key_norm) = match &self.norms {
            Some((query_norm, key_norm)) => (Some(query_norm), Some(key_norm)),
            None => (None, None),
        };
        [self.split_heads(query, query_norm), self.split_heads(key, key_norm), self.split_heads(value, None)]
    }

    fn split_heads(&self, projected: Tensor, norm: Option<&Norm>) -> Tensor {
        let (batch, tokens, width) = (projected.size(0), projected.size(1), projected.size(-1));
        let sizes = [batch, tokens, width / self.config.head_dim, self.config.head_dim];
        let split = match norm {
            Some(norm) => norm.forward(&projected.view(&sizes)),
            None => projected.view(&sizes),
        };
        split.transpose(1, 2)
    }

    fn attend(&self, query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>) -> AttentionOutput {
        let groups = self.config.num_attention_heads / self.config.num_key_value_heads;
        let config = AttentionConfig {
            implementation: self.options.attention,
            num_key_value_groups: groups,
            dropout: self.options.active(self.config.attention_dropout),
            is_causal: true,
            scale: (self.config.head_dim as f64).powf(-0.5),
        };
        match self.config.shape.scores {
            Scores::Float32 | Scores::Float32Masked => self.in_float32(query, key, value, mask),
            Scores::Alibi => self.with_alibi(query, key, value, mask),
            Scores::Interface if self.options.attention == Attention::Eager => {
                eager_attention_forward(query, key, value, mask, config)
            }
            _ if self.options.attention == Attention::Eager => falcon_eager(query, key, value, mask, groups),
            Scores::RepeatedKeys => {
                let (key, value) = (repeat_kv(key, groups), repeat_kv(value, groups));
                let config = AttentionConfig { num_key_value_groups: 1, ..config };
                (sdpa_attention_forward(query, &key, &value, mask, config), None)
            }
            Scores::BroadcastKeys if groups > 1 => {
                let (key, value) = (repeat_kv(key, groups), repeat_kv(value, groups));
                let config = AttentionConfig { implementation: Attention::Math, num_key_value_groups: 1, ..config };
                (sdpa_attention_forward(query, &key, &value, mask, config), None)
            }
            Scores::Interface | Scores::BroadcastKeys => {
                (sdpa_attention_forward(query, key, value, mask, config), None)
            }
        }
    }

    /// `GPTJAttention._attn`, `GPTNeoSelfAttention._attn`
    fn in_float32(&self, query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>) -> AttentionOutput {
        let (query, key) = (query.float(), key.float());
        let mut attn_weights = query.matmul(&key.transpose(2, 3));
        attn_weights = attn_weights.div_scalar(UNTOLD);
        if let Some(mask) = mask {
            attn_weights = &attn_weights + mask;
        }
        attn_weights = attn_weights.softmax(None);
        attn_weights = attn_weights.to(value.dtype());
        attn_weights = attn_weights.dropout(self.config.attention_dropout, self.options.drops_out());
        (attn_weights.matmul(value).transpose(1, 2).contiguous(), Some(attn_weights))
    }

    /// `BloomAttention.forward`
    fn with_alibi(&self, query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>) -> AttentionOutput {
        let (batch, heads, tokens, width) = (query.size(0), query.size(1), query.size(2), query.size(3));
        let keys = key.size(2);
        let flat = |x: &Tensor| x.reshape(&[batch * heads, x.size(2), width]);
        let (query, key, value) = (flat(query), flat(key).transpose(1, 2), flat(value));
        let alibi = full(query.context(), "mul.Tensor", &[batch * heads, 1, keys], query.dtype());
        let scores = query.baddbmm(&query, &key, UNTOLD);
        drop(alibi);
        let mut attn_weights = scores.view(&[batch, heads, tokens, keys]);
        if let Some(mask) = mask {
            attn_weights = &attn_weights + mask;
        }
        attn_weights = attn_weights.softmax(Some(DType::Float32)).to(query.dtype());
        attn_weights = attn_weights.dropout(self.config.attention_dropout, self.options.drops_out());
        let context = attn_weights.view(&[batch * heads, tokens, keys]).matmul(&value);
        let merged = context.view(&[batch, heads, tokens, width]).transpose(1, 2);
        (merged.contiguous(), Some(attn_weights))
    }
}

/// `FalconAttention.forward` without SDPA: softmax in the model's dtype, and no dropout.
fn falcon_eager(query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>, groups: u64) -> AttentionOutput {
    let (key, value) = (repeat_kv(key, groups), repeat_kv(value, groups));
    let mut scores = query.matmul(&key.transpose(2, 3));
    scores = {
        let masked = match mask {
            Some(mask) => &scores + mask,
            None => scores,
        };
        masked.softmax(None)
    };
    (scores.matmul(&value).transpose(1, 2).contiguous(), Some(scores))
}

/// The first half of a table, each number twice in a row: a table of its own in every layer.
fn doubled_half(table: &Tensor) -> Tensor {
    let last = table.sizes().len() - 1;
    let half = table.slice_any(last, table.size(-1) / 2);
    cat(&[&half, &half], last)
}
