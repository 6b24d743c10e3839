//! Scaled dot-product attention.

use tonnage_torch::{Argument, Device, operator};

use crate::job::Attention;
use crate::tensor::{Tensor, or_stop};

/// The arguments of a call beside query, key and value.
#[derive(Clone, Copy)]
pub(crate) struct AttentionCall<'a> {
    pub mask: Option<&'a Tensor>,
    pub dropout: f64,
    pub is_causal: bool,
    /// What scores are multiplied by.
    pub scale: f64,
    pub enable_gqa: bool,
    /// PyTorch chooses the kernel: jobs that name one are refused before.
    #[expect(dead_code, reason = "the simulation chooses the kernel by it")]
    pub backend: Attention,
}

/// `scaled_dot_product_attention` of [batch, heads, tokens, head_dim] tensors.
pub(crate) fn scaled_dot_product_attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    call: AttentionCall<'_>,
) -> Tensor {
    let arguments = [
        key.into(),
        value.into(),
        call.mask.map_or(Argument::None, Argument::from),
        call.dropout.into(),
        call.is_causal.into(),
        call.scale.into(),
        call.enable_gqa.into(),
    ];
    query.run(operator!("scaled_dot_product_attention"), arguments)
}

/// flash-attn's `flash_attn_func` of [batch, tokens, heads, head_dim] tensors, without a mask: PyTorch's copy of the kernel, and on the CPU,
/// which it does not know, the attention that comes to the same.
pub(crate) fn flash_attn_func(query: &Tensor, key: &Tensor, value: &Tensor) -> Tensor {
    let context = query.context();
    if context.device == Device::Cpu {
        let [heads_first, keys, values] = [query, key, value].map(|tensor| tensor.transpose(1, 2));
        let attended = heads_first.run(operator!("scaled_dot_product_attention"), [(&keys).into(), (&values).into()]);
        return attended.transpose(1, 2).contiguous();
    }
    let tokens = |tensor: &Tensor| Argument::Int(i64::try_from(tensor.size(1)).unwrap_or(i64::MAX));
    let arguments = [
        query.into(),
        key.into(),
        value.into(),
        Argument::None,
        Argument::None,
        tokens(query),
        tokens(key),
        0.0.into(),
        false.into(),
        false.into(),
    ];
    let [attended, ..] = or_stop(
        context.torch.call(operator!("_flash_attention_forward"), &arguments).and_then(|made| made.into_array::<5>()),
    );
    Tensor::of(context, attended)
}
