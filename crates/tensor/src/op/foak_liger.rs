//! fms-acceleration's copy of Liger's fused linear cross-entropy as it was first (plugins/fused-ops-and-kernels at 876e2ed,
//! fused_ops/liger_ce): each chunk's logits are upcast and cast back, and scaled into a copy.

use super::{ReduceKind, full};
use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Saved, Tensor, gradients};

/// Chunks beyond these are not run: no vocabulary is so many times as wide as its model.
const MOST_CHUNKS: u64 = 1 << 14;

/// `LigerFusedLinearCrossEntropyFunction.apply(hidden, weight, target)` of `[rows, width]`, `[vocabulary, width]` and `[rows]`.
pub fn upcast_linear_cross_entropy(hidden: &Tensor, weight: &Tensor, target: &Tensor) -> Tensor {
    let node = NodeBuilder::new("LigerFusedLinearCrossEntropyFunctionBackward", [hidden, weight]);
    let needs_weight = weight.requires_grad();
    let (loss, saved) = {
        let _no_grad = hidden.context().set_grad_enabled(false);
        let (loss, grads) = run_chunks(hidden, weight, target, needs_weight);
        (loss, grads.map(|grad| grad.map(|grad| node.save(&grad))))
    };
    node.finish(loss, move |grad| {
        let [hidden_grad, weight_grad] = saved.each_ref().map(|saved| saved.as_ref().map(Saved::unpack));
        let one = full(grad.context(), "_to_copy.default", &[], DType::Float32);
        grad.binary("ne.Tensor", &one, DType::Bool);
        gradients![hidden_grad, weight_grad]
    })
}

/// The loss, and the gradients of the hidden states and of the weight.
fn run_chunks(hidden: &Tensor, weight: &Tensor, target: &Tensor, needs_weight: bool) -> (Tensor, [Option<Tensor>; 2]) {
    let context = hidden.context();
    let rows = hidden.size(0);
    let growth = weight.size(0).div_ceil(hidden.size(1).max(1)).max(1);
    let chunk = rows.div_ceil(growth).next_power_of_two();
    let weight_grad = needs_weight.then(|| weight.unary("zeros_like.default", weight.dtype()));
    let hidden_grad = hidden.unary("zeros_like.default", hidden.dtype());
    let losses = full(context, "zeros.default", &[rows], DType::Float32);
    let head = Head { weight, total: count_targets(target) };
    let mut last = None;
    for at in 0..rows.div_ceil(chunk).min(MOST_CHUNKS) {
        let count = chunk.min(rows - at * chunk);
        last = Some(head.run_chunk(&hidden.narrow_any(0, count), &target.narrow_any(0, count), last));
    }
    drop(last);
    (losses.reduce_all("sum.default", ReduceKind::Sum, DType::Float32), [Some(hidden_grad), weight_grad])
}

/// What Python's variables of the loop hold of a chunk until the next one has its own.
struct OfChunk {
    _logits: Tensor,
    alpha: Tensor,
    grad_logits: Tensor,
}

/// The head's weight, and how many labels count.
struct Head<'a> {
    weight: &'a Tensor,
    total: Tensor,
}

impl Head<'_> {
    fn run_chunk(&self, hidden: &Tensor, target: &Tensor, last: Option<OfChunk>) -> OfChunk {
        let context = hidden.context();
        let mut logits = hidden.matmul(&self.weight.t());
        let rest = last.map(|last| (last.alpha, last.grad_logits));
        count_targets(target);
        logits = logits.to(DType::Float32);
        logits = logits.to(context.autocast_dtype().unwrap_or(hidden.dtype()));
        self.total.map("gt.Scalar", DType::Bool);
        let alpha = {
            let reciprocal = self.total.map("reciprocal.default", DType::Float32);
            reciprocal.unary("mul.Tensor", DType::Float32)
        };
        let (alpha_before, grad_before) = rest.unzip();
        drop(alpha_before);
        full(context, "mul.Tensor", &[hidden.size(0)], DType::Float32);
        let grad_logits = logits.unary("mul.Tensor", logits.dtype());
        drop(grad_before);
        // Copied into its rows of the gradient.
        grad_logits.matmul(self.weight);
        OfChunk { _logits: logits, alpha, grad_logits }
    }
}

/// `(target != ignore_index).sum()`
fn count_targets(target: &Tensor) -> Tensor {
    let counts = target.map("ne.Scalar", DType::Bool);
    counts.reduce_all("sum.default", ReduceKind::Sum, DType::Int64)
}
