//! The operations of a fused attention call.

use crate::dtype::DType;
use crate::tensor::{Context, Product, Tensor};

/// Products as wide as keys and as wide as values in the forward kernel: the scores, and the result from them.
const FORWARD_PRODUCTS: [u64; 2] = [1, 1];
/// In the backward kernel: the scores again, and two products for each of the two of the forward pass.
const BACKWARD_PRODUCTS: [u64; 2] = [3, 2];

/// A call, as torch.utils.flop_counter counts it (`sdpa_flop_count`, `sdpa_backward_flop_count`), apart from what a causal
/// kernel skips: blocks above the diagonal, half of the scores, which the counter takes for computed.
#[derive(Clone, Copy)]
pub(super) struct AttentionWork {
    dtype: DType,
    /// Of one product as wide as keys, and of one as wide as values.
    product_flops: [u64; 2],
    is_causal: bool,
    query_bytes: u64,
    key_bytes: u64,
    value_bytes: u64,
    result_bytes: u64,
}

impl AttentionWork {
    /// Of queries over `keys` keys.
    pub(super) fn new([query, key, value]: [&Tensor; 3], keys: u64, is_causal: bool) -> Self {
        let result = query.numel() / query.size(-1).max(1) * value.size(-1);
        Self {
            dtype: query.dtype(),
            product_flops: [query.numel(), result].map(|size| size.saturating_mul(keys).saturating_mul(2)),
            is_causal,
            query_bytes: query.bytes(),
            key_bytes: key.bytes(),
            value_bytes: value.bytes(),
            result_bytes: result * query.dtype().size(),
        }
    }

    /// Reads queries, keys and values, writes the result.
    pub(super) fn count_forward(self, context: &Context) {
        let read = self.query_bytes.saturating_add(self.key_bytes).saturating_add(self.value_bytes);
        self.count(context, FORWARD_PRODUCTS, read, self.result_bytes);
    }

    /// Reads queries, keys, values, the result and its gradient, writes three gradients.
    pub(super) fn count_backward(self, context: &Context) {
        let written = self.query_bytes.saturating_add(self.key_bytes).saturating_add(self.value_bytes);
        self.count(context, BACKWARD_PRODUCTS, written.saturating_add(self.result_bytes.saturating_mul(2)), written);
    }

    fn count(self, context: &Context, products: [u64; 2], read: u64, written: u64) {
        let [of_keys, of_values] = self.product_flops;
        let all = of_keys.saturating_mul(products[0]).saturating_add(of_values.saturating_mul(products[1]));
        let skipped = if self.is_causal { all / 2 } else { 0 };
        context.count_product(&Product { dtype: self.dtype, flops: all - skipped, skipped, read, written });
    }
}
