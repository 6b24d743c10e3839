//! The mem-efficient kernel (transformers/cuda/mem_eff_attention): like flash, for fp32 and with masks.

use super::AttentionCall;
use super::work::AttentionWork;
use crate::dtype::DType;
use crate::op::scratch::efficient::{BIAS_ALIGNMENT, Efficient, backward, forward};
use crate::op::scratch::{Described, contiguous, run_steps};
use crate::tensor::{Gradients, Layout, NodeBuilder, Saved, Shape, Tensor, gradients};
use tonnage_alloc::units::round_up;

pub(super) fn mem_efficient(query: &Tensor, key: &Tensor, value: &Tensor, call: &AttentionCall) -> Tensor {
    let op = "_scaled_dot_product_efficient_attention.default";
    let context = query.context();
    let efficient = Efficient {
        batch: query.size(0),
        heads: query.size(1),
        queries: query.size(2),
        keys: key.size(2),
        head_size: query.size(3),
        value_size: value.size(3),
        dtype: query.dtype(),
    };
    // A mask that is trained is a bias; in the place of one that is not, or is not there, nothing asks for a gradient.
    let bias = call.mask.map_or_else(|| query.detach(), Tensor::clone);
    let node = NodeBuilder::new("ScaledDotProductEfficientAttentionBackward0", [query, key, value, &bias]);
    let wants_bias = node.needs(3);
    let saved_mask = call.mask.map(|mask| node.save(mask));
    let (saved_key, saved_query, saved_value) = (node.save(key), node.save(query), node.save(value));
    let wants_gradient = node.needs(0) || node.needs(1) || node.needs(2);
    let rows = Shape::new(&[efficient.batch, efficient.heads, round_up(efficient.queries, 32)]);
    let mut outputs = run_steps(context, op, &forward(&efficient, wants_gradient), |index| match index {
        0 => token_major(query.sizes().with(3, value.size(3)), query.dtype()),
        _ => contiguous(rows, DType::Float32),
    });
    let work = AttentionWork::new([query, key, value], efficient.keys, call.is_causal);
    work.count_forward(context);
    let out = outputs.take(0);
    // The seed and the offset of dropout lie on the host.
    let on_host = || Tensor::nowhere(context, Shape::new(&[]), DType::Int64);
    let saved_results = [node.save(&outputs.take(1)), node.save(&out), node.save(&on_host()), node.save(&on_host())];
    node.finish(out, move |grad| {
        let _mask = saved_mask.as_ref().map(Saved::unpack);
        let (key, query, value) = (saved_key.unpack(), saved_query.unpack(), saved_value.unpack());
        let _results = saved_results.each_ref().map(Saved::unpack);
        work.count_backward(grad.context());
        efficient_backward(grad, [&query, &key, &value], &efficient, wants_bias)
    })
}

fn efficient_backward(grad: &Tensor, inputs: [&Tensor; 3], efficient: &Efficient, wants_bias: bool) -> Gradients {
    let op = "_scaled_dot_product_efficient_attention_backward.default";
    let steps = backward(efficient, !grad.is_contiguous_transposed(), wants_bias);
    let scores = [efficient.batch, efficient.heads, efficient.queries, efficient.keys.next_multiple_of(BIAS_ALIGNMENT)];
    let mut outputs = run_steps(grad.context(), op, &steps, |index| match inputs.get(index as usize) {
        Some(input) => token_major(*input.sizes(), input.dtype()),
        None => contiguous(Shape::new(&scores), efficient.dtype),
    });
    let bias = wants_bias.then(|| outputs.take(3).narrow_any(3, efficient.keys));
    gradients![outputs.take(0), outputs.take(1), outputs.take(2), bias]
}

/// The layout of all that the kernel writes: row-major with tokens before heads, whatever its inputs look like.
fn token_major(sizes: Shape, dtype: DType) -> Described {
    let strides = sizes.swapped(1, 2).contiguous_strides().swapped(1, 2);
    (Layout::strided(sizes, strides), dtype)
}
