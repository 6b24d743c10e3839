//! Scaled dot-product attention (transformers/attention.cpp, cuda/sdp_utils.cpp, cuda/attention.cu,
//! cuda/attention_backward.cu): which kernel runs, what it saves, what it allocates.

mod efficient;
mod flash;

use crate::dtype::DType;
use crate::spec::Attention;
use crate::tensor::{NodeBuilder, Tensor, cast_arguments, gradients};

/// A kernel of `scaled_dot_product_attention`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttentionKernel {
    Flash,
    MemEfficient,
    Math,
}

/// The arguments of a call beside query, key and value.
#[derive(Clone, Copy)]
pub(crate) struct AttentionCall<'a> {
    pub mask: Option<&'a Tensor>,
    pub dropout: f64,
    pub is_causal: bool,
    pub enable_gqa: bool,
    pub backend: Attention,
}

/// `scaled_dot_product_attention` of [batch, heads, tokens, head_dim] tensors; the result has the same form, laid out
/// as [batch, tokens, heads, head_dim] by the fused kernels.
pub(crate) fn scaled_dot_product_attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    call: AttentionCall,
) -> Tensor {
    let [query, key, value] = cast_arguments([query, key, value]);
    match choose_kernel(&query, &key, &value, &call) {
        AttentionKernel::Flash => flash::padded(&query, &key, &value, &call),
        AttentionKernel::MemEfficient => efficient::mem_efficient(&query, &key, &value, &call),
        AttentionKernel::Math => math(&query, &key, &value, &call),
    }
}

/// `_fused_sdp_choice_cuda` with cuDNN attention deprioritized: flash, then mem-efficient, then math.
pub(crate) fn choose_kernel(query: &Tensor, key: &Tensor, value: &Tensor, call: &AttentionCall) -> AttentionKernel {
    let allows = |backend| call.backend == Attention::Sdpa || call.backend == backend;
    if (allows(Attention::Flash) || call.backend == Attention::Cudnn) && can_use_flash(query, key, value, call) {
        AttentionKernel::Flash
    } else if allows(Attention::MemEfficient) && can_use_mem_efficient(query, key, value, call) {
        AttentionKernel::MemEfficient
    } else {
        AttentionKernel::Math
    }
}

fn can_use_flash(query: &Tensor, key: &Tensor, value: &Tensor, call: &AttentionCall) -> bool {
    let capability = query.context().device().compute_capability;
    let head_dim = query.size(-1);
    let same_heads = query.size(1) == key.size(1) && key.size(1) == value.size(1);
    query.dtype().is_half()
        && capability >= (8, 0)
        && (query.dtype() == DType::Float16 || capability >= (8, 0))
        && call.mask.is_none()
        && head_dim <= 256
        && head_dim == value.size(-1)
        && (same_heads || call.enable_gqa)
        && !(call.is_causal && query.size(2) != key.size(2))
}

fn can_use_mem_efficient(query: &Tensor, key: &Tensor, value: &Tensor, call: &AttentionCall) -> bool {
    let capability = query.context().device().compute_capability;
    let alignment = if query.dtype() == DType::Float32 { 4 } else { 8 };
    let same_heads = query.size(1) == key.size(1) && key.size(1) == value.size(1);
    same_heads
        && query.dtype().is_floating_point()
        && (query.dtype() != DType::Bfloat16 || capability >= (8, 0))
        && query.size(-1).is_multiple_of(alignment)
        && value.size(-1).is_multiple_of(alignment)
        && !(call.is_causal && call.mask.is_some())
}

/// `_scaled_dot_product_attention_math`: plain ops, so its memory is theirs.
fn math(query: &Tensor, key: &Tensor, value: &Tensor, call: &AttentionCall) -> Tensor {
    let (key, value) = if call.enable_gqa {
        let groups = query.size(1) / key.size(1).max(1);
        (key.repeat_interleave_heads(groups), value.repeat_interleave_heads(groups))
    } else {
        (key.clone(), value.clone())
    };
    let scaled_query = query.mul_scalar();
    let scaled_key = key.transpose(2, 3).mul_scalar();
    let scores = scaled_query.matmul(&scaled_key);
    let weights = scores.softmax(None);
    weights.matmul(&value)
}

impl Tensor {
    /// `pad(self, (0, size - self.size(-1)))` with zeros
    fn pad_last(&self, size: u64) -> Tensor {
        let node = NodeBuilder::new("ConstantPadNdBackward0", &[self]);
        let sizes = self.sizes().with(self.sizes().len() - 1, size);
        let out = Tensor::empty(self.context(), "constant_pad_nd.default", sizes, self.dtype());
        let from = *self.sizes();
        node.finish(out, move |grad| {
            let narrowed = grad.narrow(from.len() - 1, from.last_size());
            gradients![narrowed.clone_contiguous()]
        })
    }

    /// Whether [batch, heads, tokens, head_dim] is row-major with tokens before heads, as the fused kernels read it.
    fn is_contiguous_transposed(&self) -> bool {
        self.alias(self.sizes().swapped(1, 2), self.strides().swapped(1, 2)).is_contiguous()
    }

    /// Each head of [batch, heads, tokens, head_dim] repeated `groups` times.
    fn repeat_interleave_heads(&self, groups: u64) -> Tensor {
        let s = self.sizes();
        let expanded = self.unsqueeze(2).expand(&[s[0], s[1], groups, s[2], s[3]]);
        expanded.reshape(&[s[0], s[1] * groups, s[2], s[3]])
    }
}
