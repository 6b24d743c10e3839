//! What the attentions of decoders share: projections by Llama's names, and all that follows rotary embeddings.

use crate::building::Builder;
use crate::dtype::DType;
use crate::job::Attention;
use crate::model::nn::{AttentionConfig, AttentionOutput, Linear, attention_forward, fused_products, repeat_kv};
use crate::tensor::Tensor;

use super::RunOptions;
use super::decoder::DecoderConfig;
use super::layer::LayerCall;

/// The attention of a decoder's layer.
pub(crate) trait SelfAttention: 'static {
    /// Its output, and the weights that only the eager form has.
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput;
}

impl SelfAttention for Box<dyn SelfAttention> {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        (**self).forward(hidden_states, call, layer)
    }
}

/// `q_proj`, `k_proj`, `v_proj` and the projection back, in the order in which they are registered.
pub(crate) struct Projections {
    pub q_proj: Linear,
    pub k_proj: Linear,
    pub v_proj: Linear,
    pub o_proj: Linear,
    head_dim: u64,
}

impl Projections {
    /// With `o_proj` under the name that the family gives it.
    pub(crate) fn new(at: &Builder, config: &DecoderConfig, o_proj: &str) -> Self {
        Self::of_width(at, config, o_proj, config.hidden_size)
    }

    /// The same of what is `width` wide, projected back to the model's width.
    pub(crate) fn of_width(at: &Builder, config: &DecoderConfig, o_proj: &str, width: u64) -> Self {
        let bias = config.qkv_bias;
        let (query_width, key_value_width) = config.widths();
        Self {
            q_proj: Linear::new(&at.at("q_proj"), width, query_width, bias),
            k_proj: Linear::new(&at.at("k_proj"), width, key_value_width, bias),
            v_proj: Linear::new(&at.at("v_proj"), width, key_value_width, bias),
            o_proj: Linear::new(&at.at(o_proj), query_width, config.hidden_size, config.o_bias),
            head_dim: config.head_dim,
        }
    }

    /// `projected.view(*input_shape, -1, head_dim)`
    pub(crate) fn split_heads(&self, projected: &Tensor) -> Tensor {
        let heads = projected.size(-1) / self.head_dim;
        projected.view(&[projected.size(0), projected.size(1), heads, self.head_dim])
    }

    /// All three of a fused kernel, if one is in place.
    pub(crate) fn project_fused(&self, hidden_states: &Tensor) -> Option<[Tensor; 3]> {
        fused_products([&self.q_proj, &self.k_proj, &self.v_proj], hidden_states)
    }

    /// All three, before any is split into heads.
    pub(crate) fn project(&self, hidden_states: &Tensor) -> [Tensor; 3] {
        [&self.q_proj, &self.k_proj, &self.v_proj].map(|projection| projection.forward(hidden_states))
    }

    /// Query, key and value, [batch, heads, tokens, head_dim] each, one after the other.
    pub(crate) fn heads_first(&self, hidden_states: &Tensor) -> [Tensor; 3] {
        [&self.q_proj, &self.k_proj, &self.v_proj]
            .map(|projection| self.split_heads(&projection.forward(hidden_states)).transpose(1, 2))
    }

    /// `o_proj(attn_output.reshape(*input_shape, -1).contiguous())`
    pub(crate) fn merge_heads(&self, attn_output: Tensor) -> Tensor {
        let mut attn_output = attn_output;
        attn_output = join_heads(&attn_output);
        match fused_products([&self.o_proj], &attn_output) {
            Some([output]) => output,
            None => self.o_proj.forward(&attn_output),
        }
    }
}

/// `attn_output.reshape(*input_shape, -1).contiguous()` of [batch, tokens, heads, head_dim]
pub(crate) fn join_heads(attn_output: &Tensor) -> Tensor {
    let s = attn_output.sizes();
    attn_output.reshape(&[s[0], s[1], s[2] * s[3]]).contiguous()
}

/// `attention_interface(...)` with this dropout, and scores multiplied by `scale`: returns [batch, tokens, heads, head_dim].
pub(crate) fn attend(
    [query, key, value]: [&Tensor; 3],
    call: &LayerCall,
    scores: (f64, f64),
    options: &RunOptions,
) -> AttentionOutput {
    attend_with([query, key, value], call, scores, options, Some(DType::Float32))
}

/// The same with the eager form's softmax in this dtype, if another than its input's.
pub(crate) fn attend_with(
    [query, key, value]: [&Tensor; 3],
    call: &LayerCall,
    (dropout, scale): (f64, f64),
    options: &RunOptions,
    softmax: Option<DType>,
) -> AttentionOutput {
    let (mask, position_ids) = (call.mask.as_ref(), Some(&call.position_ids));
    let config = AttentionConfig {
        implementation: options.attention,
        num_key_value_groups: query.size(1) / key.size(1).max(1),
        dropout: options.active_call(dropout),
        is_causal: true,
        scale,
    };
    if options.attention == Attention::Eager {
        eager_attention(query, key, value, mask, (config, softmax))
    } else {
        (attention_forward(query, key, value, (mask, position_ids), config), None)
    }
}

/// `eager_attention_forward` of the Llama family: softmax in fp32.
pub(crate) fn eager_attention_forward(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    mask: Option<&Tensor>,
    config: AttentionConfig,
) -> AttentionOutput {
    eager_attention(query, key, value, mask, (config, Some(DType::Float32)))
}

fn eager_attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    mask: Option<&Tensor>,
    (config, softmax): (AttentionConfig, Option<DType>),
) -> AttentionOutput {
    let key_states = repeat_kv(key, config.num_key_value_groups);
    let value_states = repeat_kv(value, config.num_key_value_groups);
    let mut attn_weights = query.matmul(&key_states.transpose(2, 3)).mul_scalar(config.scale);
    if let Some(mask) = mask {
        attn_weights = &attn_weights + mask;
    }
    attn_weights = match softmax {
        Some(_) => attn_weights.softmax(softmax).to(query.dtype()),
        None => attn_weights.softmax(None),
    };
    attn_weights = attn_weights.dropout(config.dropout, true);
    let attn_output = attn_weights.matmul(&value_states);
    (attn_output.transpose(1, 2).contiguous(), Some(attn_weights))
}
