//! `_scaled_dot_product_attention_math` (transformers/attention.cpp): plain ops, so its memory is theirs.

use super::AttentionCall;
use crate::dtype::DType;
use crate::op::full;
use crate::tensor::Tensor;

/// Computes in fp32; `call.mask` is already additive.
pub(super) fn math(query: &Tensor, key: &Tensor, value: &Tensor, call: &AttentionCall) -> Tensor {
    let origin = query.dtype();
    let [query_acc, key_acc, value_acc] = [query, key, value].map(Tensor::float);
    // Both are scaled by the root (attention.cpp, `pre_process_scale`).
    let root = call.scale.sqrt();
    let query = query_acc.mul_scalar(root);
    let _causal_mask = call.is_causal.then(|| causal_mask(&query, &key_acc));
    let (key_expanded, value_expanded) = if call.enable_gqa {
        let groups = query.size(1) / key_acc.size(1).max(1);
        (key_acc.repeat_interleave_heads(groups), value_acc.repeat_interleave_heads(groups))
    } else {
        (key_acc.clone(), value_acc.clone())
    };
    let weights = {
        let scores = {
            let scaled_key = key_expanded.transpose(2, 3).mul_scalar(root);
            query.matmul(&scaled_key)
        };
        // A mask is added in place; one that is trained is a bias.
        match call.mask.filter(|mask| mask.requires_grad()) {
            Some(bias) => scores.add_in_place(bias).safe_softmax(),
            None => scores.safe_softmax(),
        }
    };
    let dropped = weights.dropout(call.dropout, true);
    drop(weights);
    // The second result, which SDPA throws away, is made first.
    let _weights_result = dropped.to(origin);
    let out = dropped.matmul(&value_expanded);
    out.to(origin)
}

/// The mask of `is_causal`, [queries, keys]: ones, their lower triangle, and that made additive.
fn causal_mask(query: &Tensor, key: &Tensor) -> Tensor {
    let sizes = [query.size(2), key.size(2)];
    let lower = {
        let ones = full(query.context(), "ones.default", &sizes, DType::Bool);
        ones.map("tril.default", DType::Bool)
    };
    super::additive_mask(&lower, query.dtype())
}

impl Tensor {
    /// `self.repeat_interleave(groups, dim=1)` of [batch, heads, tokens, head_dim]: always a copy.
    fn repeat_interleave_heads(&self, groups: u64) -> Tensor {
        let s = self.sizes();
        let expanded = self.unsqueeze(2).expand(&[s[0], s[1], groups, s[2], s[3]]);
        expanded.clone_contiguous().view(&[s[0], s[1] * groups, s[2], s[3]])
    }
}
