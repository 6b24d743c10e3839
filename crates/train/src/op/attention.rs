//! Scaled dot-product attention.

use tonnage_torch::{Argument, operator};

use crate::job::Attention;
use crate::tensor::Tensor;

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
