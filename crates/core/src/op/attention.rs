//! Scaled dot-product attention (transformers/attention.cpp, cuda/sdp_utils.cpp, cuda/attention.cu,
//! cuda/attention_backward.cu): which kernel runs, what it saves, what it allocates.

use crate::dtype::DType;
use crate::spec::Attention;
use crate::tensor::{NodeBuilder, Shape, Tensor, cast_arguments, gradients};
use crate::units::round_up;

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
        AttentionKernel::Flash => padded_flash(&query, &key, &value, &call),
        AttentionKernel::MemEfficient => mem_efficient(&query, &key, &value, &call),
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

/// Flash needs head_dim in multiples of 8: it pads its inputs with zeros and cuts the result.
fn padded_flash(query: &Tensor, key: &Tensor, value: &Tensor, call: &AttentionCall) -> Tensor {
    let head_dim = query.size(-1);
    let padded = round_up(head_dim, 8);
    if padded == head_dim {
        return flash(query, key, value, call);
    }
    let out = flash(&query.pad_last(padded), &key.pad_last(padded), &value.pad_last(padded), call);
    out.slice(3, head_dim)
}

/// The layout in which the fused kernels write their output: tokens before heads in memory.
fn token_major(sizes: &Shape) -> Shape {
    sizes.swapped(1, 2).contiguous_strides().swapped(1, 2)
}

fn flash(query: &Tensor, key: &Tensor, value: &Tensor, call: &AttentionCall) -> Tensor {
    let op = "_scaled_dot_product_flash_attention.default";
    let context = query.context();
    let node = NodeBuilder::new("ScaledDotProductFlashAttentionBackward0", &[query, key, value]);
    let (saved_query, saved_key, saved_value) = (node.save(query), node.save(key), node.save(value));
    let (batch, heads, tokens) = (query.size(0), query.size(1), query.size(2));
    let out_sizes = query.sizes().with(3, value.size(-1));
    let out = Tensor::empty_strided(context, op, out_sizes, token_major(&out_sizes), query.dtype());
    let log_sum_exp = Tensor::empty(context, op, Shape::new(&[batch, heads, tokens]), DType::Float32);
    // Seed and offset of the dropout's random numbers, and a placeholder: the other way round without dropout.
    let philox_sizes: [&[u64]; 2] = if call.dropout > 0.0 { [&[], &[2]] } else { [&[2], &[]] };
    let philox = philox_sizes.map(|sizes| Tensor::empty(context, op, Shape::new(sizes), DType::Int64));
    let saved_results = [&out, &log_sum_exp, &philox[0], &philox[1]].map(|result| node.save_output(result));
    node.finish(out, move |grad| {
        let (query, key, value) = (saved_query.unpack(), saved_key.unpack(), saved_value.unpack());
        let _results = [0, 1, 2, 3].map(|at: usize| saved_results[at].unpack());
        let _grad = grad.transpose(1, 2).contiguous();
        flash_backward(&query, &key, &value)
    })
}

fn flash_backward(query: &Tensor, key: &Tensor, value: &Tensor) -> crate::tensor::Gradients {
    let op = "_scaled_dot_product_flash_attention_backward.default";
    let context = query.context();
    let (batch, heads, tokens, head_dim) = (query.size(0), query.size(1), query.size(2), query.size(3));
    let grad_query = query.unary(op, query.dtype());
    let grad_key = key.unary(op, key.dtype());
    let grad_value = value.unary(op, value.dtype());
    let rounded_tokens = round_up(tokens, 128);
    // flash_api.cpp rounds head_dim to 32, and to 64 above 128.
    let rounded_dim = round_up(head_dim, if head_dim <= 128 { 32 } else { 64 });
    let rows = batch * heads * rounded_tokens;
    let _softmax_d = Tensor::scratch(context, op, 4 * rows);
    let _query_accumulator = Tensor::scratch(context, op, 4 * rows * rounded_dim);
    let _expanded = (key.size(1) != heads).then(|| {
        let bytes = batch * key.size(2) * heads * head_dim * key.dtype().size();
        [Tensor::scratch(context, op, bytes), Tensor::scratch(context, op, bytes)]
    });
    gradients![grad_query, grad_key, grad_value]
}

fn mem_efficient(query: &Tensor, key: &Tensor, value: &Tensor, call: &AttentionCall) -> Tensor {
    let op = "_scaled_dot_product_efficient_attention.default";
    let context = query.context();
    let node = NodeBuilder::new("ScaledDotProductEfficientAttentionBackward0", &[query, key, value]);
    let (saved_query, saved_key, saved_value) = (node.save(query), node.save(key), node.save(value));
    let saved_mask = call.mask.map(|mask| node.save(mask));
    let (batch, heads, tokens) = (query.size(0), query.size(1), query.size(2));
    let out_sizes = query.sizes().with(3, value.size(-1));
    let out = Tensor::empty_strided(context, op, out_sizes, token_major(&out_sizes), query.dtype());
    let row_count = if node.needs(0) || node.needs(1) || node.needs(2) { round_up(tokens, 32) } else { 0 };
    let log_sum_exp = Tensor::empty(context, op, Shape::new(&[batch, heads, row_count]), DType::Float32);
    let saved_results = [&out, &log_sum_exp].map(|result| node.save_output(result));
    node.finish(out, move |grad| {
        let (query, key, value) = (saved_query.unpack(), saved_key.unpack(), saved_value.unpack());
        let _mask = saved_mask.as_ref().map(|mask| mask.unpack());
        let results = [0, 1].map(|at: usize| saved_results[at].unpack());
        mem_efficient_backward(grad, &query, &key, &value, &results[0])
    })
}

fn mem_efficient_backward(
    grad: &Tensor,
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    out: &Tensor,
) -> crate::tensor::Gradients {
    let op = "_scaled_dot_product_efficient_attention_backward.default";
    let context = query.context();
    let grad_query = query.unary(op, query.dtype());
    let grad_key = key.unary(op, key.dtype());
    let grad_value = value.unary(op, value.dtype());
    let rows = query.size(0) * query.size(1) * query.size(2);
    let product = Tensor::scratch(context, op, out.numel() * 4);
    let delta = Tensor::scratch(context, op, rows * 4);
    let _delta = Tensor::scratch(context, op, rows * 4);
    drop((product, delta, grad));
    gradients![grad_query, grad_key, grad_value]
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

    /// Each head of [batch, heads, tokens, head_dim] repeated `groups` times.
    fn repeat_interleave_heads(&self, groups: u64) -> Tensor {
        let s = self.sizes();
        let expanded = self.unsqueeze(2).expand(&[s[0], s[1], groups, s[2], s[3]]);
        expanded.reshape(&[s[0], s[1] * groups, s[2], s[3]])
    }
}
