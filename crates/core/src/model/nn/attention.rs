//! The attention interface of transformers (integrations/sdpa_attention.py, integrations/flash_attention.py).

use crate::dtype::DType;
use crate::job::{Attention, SdpaForm};
use crate::op::{AttentionCall, arange, package_flash_attn_func, scaled_dot_product_attention};
use crate::tensor::Tensor;

/// What a call of the attention interface depends on beside its tensors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionConfig {
    pub implementation: Attention,
    pub num_key_value_groups: u64,
    pub dropout: f64,
    pub is_causal: bool,
    /// What scores are multiplied by.
    pub scale: f64,
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
    let form = query.context().transformers().sdpa();
    let grouped = config.num_key_value_groups > 1;
    let takes_groups = mask.is_none() && key.size(-1) == value.size(-1) && value.size(-1) <= 256;
    let enable_gqa = grouped && takes_groups && matches!(form, SdpaForm::Grouped | SdpaForm::GroupedContiguous);
    let (key, value) = if grouped && !enable_gqa {
        (repeat_kv(key, config.num_key_value_groups), repeat_kv(value, config.num_key_value_groups))
    } else {
        (key.clone(), value.clone())
    };
    let is_copied = match form {
        SdpaForm::Grouped => false,
        SdpaForm::Class => mask.is_some(),
        SdpaForm::RepeatedContiguous | SdpaForm::GroupedContiguous => true,
    };
    let query = if is_copied { query.contiguous() } else { query.clone() };
    let (key, value) = if is_copied { (key.contiguous(), value.contiguous()) } else { (key, value) };
    let is_causal = query.size(2) > 1 && mask.is_none() && config.is_causal;
    let AttentionConfig { dropout, scale, implementation: backend, .. } = config;
    let call = AttentionCall { mask, dropout, is_causal, scale, enable_gqa, backend };
    let attn_output = scaled_dot_product_attention(&query, &key, &value, call);
    attn_output.transpose(1, 2).contiguous()
}

/// `attention_interface(...)` of what is not eager: returns [batch, tokens, heads, head_dim].
pub(crate) fn attention_forward(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    (mask, position_ids): (Option<&Tensor>, Option<&Tensor>),
    config: AttentionConfig,
) -> Tensor {
    match config.implementation {
        Attention::FlashAttention2 => flash_attention_forward([query, key, value], position_ids, config),
        _ => sdpa_attention_forward(query, key, value, mask, config),
    }
}

/// `flash_attention_forward` of rows without padding (modeling_flash_attention_utils.py): heads come last but one, and what
/// rotary tables made fp32 under autocast is cast back.
fn flash_attention_forward(states: [&Tensor; 3], position_ids: Option<&Tensor>, config: AttentionConfig) -> Tensor {
    let states = states.map(|states| states.transpose(1, 2));
    let target = states[0].context().autocast_dtype().filter(|_| states[0].dtype() == DType::Float32);
    let [query, key, value] = match target {
        Some(dtype) => states.map(|states| states.to(dtype)),
        None => states,
    };
    let _is_fa_with_position_ids = position_ids.map(|position_ids| is_packed_sequence(position_ids, query.size(0)));
    package_flash_attn_func(&query, &key, &value, config.dropout, config.is_causal)
}

/// `_is_packed_sequence`: positions are compared only in a batch of one row.
fn is_packed_sequence(position_ids: &Tensor, batch_size: u64) -> Option<Tensor> {
    let context = position_ids.context();
    let increasing = {
        let positions = arange(context, position_ids.size(1));
        let least = position_ids.min_int();
        &positions + &least
    };
    (batch_size == 1).then(|| {
        let sum = {
            let distances = {
                let differences = &increasing - position_ids;
                differences.abs_int()
            };
            distances.sum_int()
        };
        sum.to(DType::Bool)
    })
}
