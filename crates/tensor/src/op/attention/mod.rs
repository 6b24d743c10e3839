//! Scaled dot-product attention (transformers/attention.cpp, cuda/sdp_utils.cpp, cuda/attention.cu,
//! cuda/attention_backward.cu): which kernel runs, what it saves, what it allocates.

mod choice;
mod efficient;
mod flash;
mod math;
mod ring;
mod work;

use choice::choose_kernel;
pub use flash::{flash_attn_func, package_flash_attn_func};

use super::where_self;
use crate::Attention;
use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Tensor, cast_arguments, gradients};

/// Elements that a mask's rows are padded to for the mem-efficient kernel (attention.cpp, `mem_eff_alignment`).
const MASK_ALIGNMENT: u64 = 8;

/// A kernel of `scaled_dot_product_attention`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionKernel {
    Flash,
    MemEfficient,
    Math,
}

/// The arguments of a call beside query, key and value.
#[derive(Clone, Copy)]
pub struct AttentionCall<'a> {
    pub mask: Option<&'a Tensor>,
    pub dropout: f64,
    pub is_causal: bool,
    /// What scores are multiplied by.
    pub scale: f64,
    pub enable_gqa: bool,
    pub backend: Attention,
}

/// `scaled_dot_product_attention` of [batch, heads, tokens, head_dim] tensors; the result has the same form, laid out
/// as [batch, tokens, heads, head_dim] by the fused kernels.
pub fn scaled_dot_product_attention(query: &Tensor, key: &Tensor, value: &Tensor, call: AttentionCall) -> Tensor {
    let bias = call.mask.filter(|mask| mask.dtype() != DType::Bool).map(|mask| cast_arguments([mask])[0].clone());
    let [query, key, value] = cast_arguments([query, key, value]);
    let _no_autocast = query.context().disable_autocast();
    let call = AttentionCall { mask: bias.as_ref().or(call.mask), ..call };
    let kernel = choose_kernel(&query, &key, &value, &call);
    let mut mask = bias.clone().or_else(|| call.mask.map(|mask| additive_mask(mask, query.dtype())));
    if kernel == AttentionKernel::MemEfficient {
        mask = mask.map(aligned_mask);
        // `preprocess_mask`: what every row and head shares is summed in backward.
        mask = mask.map(|mask| mask.expand(&[query.size(0), query.size(1), query.size(2), key.size(2)]));
    }
    let call = AttentionCall { mask: mask.as_ref(), ..call };
    if let Some(ring) = query.context().ring() {
        // Jobs that another kernel would run are refused before.
        return ring::ring_attention(&query, &key, &value, ring);
    }
    match kernel {
        AttentionKernel::Flash => flash::padded(&query, &key, &value, &call),
        AttentionKernel::MemEfficient => efficient::mem_efficient(&query, &key, &value, &call),
        AttentionKernel::Math => math::math(&query, &key, &value, &call),
    }
}

/// `convert_boolean_attn_mask`: 0 where the mask is true, minus infinity elsewhere.
fn additive_mask(mask: &Tensor, dtype: DType) -> Tensor {
    where_self(mask, None, dtype)
}

/// `preprocess_mask`: the mem-efficient kernel wants rows that begin at multiples of 8 elements.
fn aligned_mask(mask: Tensor) -> Tensor {
    let last = mask.sizes().len() - 1;
    if mask.strides()[..last].iter().all(|stride| stride.is_multiple_of(MASK_ALIGNMENT)) {
        return mask;
    }
    let size = mask.size(-1);
    let padded = mask.pad_last((size / MASK_ALIGNMENT + 1) * MASK_ALIGNMENT);
    padded.slice_any(last, size)
}

impl Tensor {
    /// `pad(self, (0, size - self.size(-1)))`
    pub fn pad_last(&self, size: u64) -> Tensor {
        let node = NodeBuilder::new("ConstantPadNdBackward0", [self]);
        let op = "constant_pad_nd.default";
        let sizes = self.sizes().with(self.sizes().len() - 1, size);
        let out = Tensor::empty(self.context(), op, sizes, self.dtype());
        let from = *self.sizes();
        node.finish(out, move |grad| gradients![Tensor::empty(grad.context(), op, from, grad.dtype())])
    }

    /// `pad(self, (count, 0))`, outside autograd
    pub fn pad_before(&self, count: u64) -> Tensor {
        self.detach().pad_last(self.size(-1) + count)
    }

    /// Whether [batch, heads, tokens, head_dim] is row-major with tokens before heads, as the fused kernels read it.
    fn is_contiguous_transposed(&self) -> bool {
        self.layout().transposed(1, 2).is_contiguous()
    }
}
