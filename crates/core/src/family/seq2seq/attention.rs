//! Attention by plain products, as the modeling files of encoder-decoders have it.

use crate::tensor::Tensor;

/// `eager_attention_forward`: what is added to the scores, then a softmax in their dtype; the output and the weights.
pub(super) fn attend_eagerly(
    [query, key, value]: [&Tensor; 3],
    added: [Option<&Tensor>; 2],
    (dropout, scale): (f64, f64),
) -> (Tensor, Option<Tensor>) {
    let mut attn_weights = query.matmul(&key.transpose(2, 3)).mul_scalar(scale);
    for added in added.into_iter().flatten() {
        attn_weights = &attn_weights + added;
    }
    attn_weights = attn_weights.softmax(None);
    attn_weights = attn_weights.dropout(dropout, true);
    let attn_output = attn_weights.matmul(value);
    (attn_output.transpose(1, 2).contiguous(), Some(attn_weights))
}
