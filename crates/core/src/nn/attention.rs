//! The attention interface of transformers (integrations/sdpa_attention.py).

use crate::op::{AttentionCall, scaled_dot_product_attention};
use crate::spec::Attention;
use crate::tensor::Tensor;

/// What a call of the attention interface depends on beside its tensors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionConfig {
    pub implementation: Attention,
    pub num_key_value_groups: u64,
    pub dropout: f64,
    pub is_causal: bool,
}

/// What an attention module returns: its output, and the weights that only the eager form has. Callers hold the
/// weights to the end of their layer, as Python's `hidden_states, _ = ...` does.
pub(crate) type AttentionOutput = (Tensor, Option<Tensor>);

/// `repeat_kv`: keys or values of [batch, kv heads, tokens, head_dim] copied to all query heads.
pub(crate) fn repeat_kv(hidden_states: &Tensor, n_rep: u64) -> Tensor {
    if n_rep == 1 {
        return hidden_states.clone();
    }
    let s = *hidden_states.sizes();
    let expanded = hidden_states.unsqueeze(2).expand(&[s[0], s[1], n_rep, s[2], s[3]]);
    expanded.reshape(&[s[0], s[1] * n_rep, s[2], s[3]])
}

/// `sdpa_attention_forward`: returns [batch, tokens, heads, head_dim].
pub(crate) fn sdpa_attention_forward(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    mask: Option<&Tensor>,
    config: AttentionConfig,
) -> Tensor {
    let grouped = config.num_key_value_groups > 1;
    let enable_gqa = grouped && mask.is_none() && key.size(-1) == value.size(-1) && value.size(-1) <= 256;
    let (key, value) = if grouped && !enable_gqa {
        (repeat_kv(key, config.num_key_value_groups), repeat_kv(value, config.num_key_value_groups))
    } else {
        (key.clone(), value.clone())
    };
    let is_causal = query.size(2) > 1 && mask.is_none() && config.is_causal;
    let call = AttentionCall { mask, dropout: config.dropout, is_causal, enable_gqa, backend: config.implementation };
    let attn_output = scaled_dot_product_attention(query, &key, &value, call);
    attn_output.transpose(1, 2).contiguous()
}
