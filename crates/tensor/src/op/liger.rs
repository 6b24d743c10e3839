//! Liger's fused linear cross-entropy (liger-kernel 0.8.5, ops/fused_linear_cross_entropy.py): logits exist for one
//! chunk of rows at a time, and both gradients are made in the forward pass.

use crate::dtype::DType;
use crate::key;
use crate::tensor::{NodeBuilder, Saved, Shape, Tensor, gradients};

use super::matmul::count_product;
use super::{ReduceKind, full};

/// Chunks beyond these are not run: no vocabulary is so many times as wide as its model.
const MOST_CHUNKS: u64 = 1 << 14;

/// `LigerFusedLinearCrossEntropyFunction.apply(hidden, weight, target)` of `[rows, width]`, `[vocabulary, width]` and
/// `[rows]`, the mean over rows.
pub fn fused_linear_cross_entropy(hidden: &Tensor, weight: &Tensor, target: &Tensor) -> Tensor {
    let context = hidden.context();
    let node = NodeBuilder::new("LigerFusedLinearCrossEntropyFunctionBackward", [hidden, weight]);
    let needs_weight = node.needs(1);
    let (loss, saved) = {
        let _no_grad = context.set_grad_enabled(false);
        let (loss, grads) = forward(hidden, weight, target, needs_weight);
        (loss, grads.map(|grad| grad.map(|grad| node.save(&grad))))
    };
    node.finish(loss, move |grad| {
        let [hidden_grad, weight_grad] = [&saved[0], &saved[1]].map(|saved| saved.as_ref().map(Saved::unpack));
        compare_with_one(grad);
        gradients![hidden_grad, weight_grad]
    })
}

/// `torch.equal(grad_output, torch.tensor(1.0))`; scaling, where it is needed, works in place.
fn compare_with_one(grad: &Tensor) {
    let one = full(grad.context(), "_to_copy.default", &[], DType::Float32);
    let equal = grad.binary("equal.default", &one, DType::Bool);
    equal.reduce_all("equal.default", ReduceKind::Any, DType::Bool);
}

/// Rows of one chunk: a power of two for which the logits take about as much as the hidden states.
fn chunk_rows(rows: u64, width: u64, vocabulary: u64) -> u64 {
    let growth = vocabulary.div_ceil(width.max(1)).max(1);
    rows.div_ceil(growth).next_power_of_two().min(rows).max(1)
}

/// The loss, and the gradients of the hidden states and of the weight.
fn forward(hidden: &Tensor, weight: &Tensor, target: &Tensor, needs_weight: bool) -> (Tensor, [Option<Tensor>; 2]) {
    let context = hidden.context();
    let (rows, width, vocabulary) = (hidden.size(0), hidden.size(1), weight.size(0));
    let chunk = chunk_rows(rows, width, vocabulary);
    let hidden_grad = hidden.unary("zeros_like.default", hidden.dtype());
    let wants_gradient = hidden.requires_grad();
    let weight_grad = (wants_gradient && needs_weight).then(|| weight.unary("zeros_like.default", weight.dtype()));
    let losses = full(context, "zeros.default", &[rows], DType::Float32);
    let _counted = {
        let mask = target.map("ne.Scalar", DType::Bool);
        mask.reduce_all("sum.default", ReduceKind::Sum, DType::Int64);
        mask
    };
    let head = Head { weight, weight_grad: weight_grad.as_ref(), wants_gradient };
    let storage = head
        .writes_into_storage(hidden)
        .then(|| Tensor::empty(context, "empty.memory_format", Shape::new(&[chunk, vocabulary]), hidden.dtype()));
    if rows / chunk > MOST_CHUNKS {
        context.fail(&[key::LOSS], || {
            format!("loss = \"liger\": a vocabulary of {vocabulary} takes {} chunks", rows / chunk)
        });
    }
    let mut start = 0;
    while start < rows.min(chunk * MOST_CHUNKS) {
        let count = chunk.min(rows - start);
        head.run_chunk(&hidden.narrow_any(0, count), storage.as_ref());
        start += count;
    }
    drop(storage);
    let loss = losses.reduce_all("sum.default", ReduceKind::Sum, DType::Float32);
    (loss, [Some(hidden_grad), weight_grad])
}

/// The head's weight with what the chunks add their gradients to.
struct Head<'a> {
    weight: &'a Tensor,
    weight_grad: Option<&'a Tensor>,
    wants_gradient: bool,
}

impl Head<'_> {
    /// Whether the products go into memory that is there already: not where autocast would cast the operands.
    fn writes_into_storage(&self, hidden: &Tensor) -> bool {
        let lower = hidden.context().autocast_dtype().unwrap_or(hidden.dtype());
        hidden.dtype() == self.weight.dtype() && hidden.dtype() == lower
    }

    fn run_chunk(&self, hidden: &Tensor, storage: Option<&Tensor>) {
        let logits = match storage {
            Some(storage) => {
                hidden.context().need_cublas_workspace("mm.out");
                let logits = storage.narrow_any(0, hidden.size(0));
                count_product(hidden, &self.weight.t(), &logits);
                if self.wants_gradient {
                    count_product(&logits, self.weight, hidden);
                }
                logits
            }
            None => {
                let logits = hidden.matmul(&self.weight.t());
                if self.wants_gradient {
                    // Copied into its rows of the gradient.
                    logits.matmul(self.weight);
                }
                logits
            }
        };
        if let Some(weight_grad) = self.weight_grad {
            add_to_weight_gradient(weight_grad, &logits, hidden);
        }
    }
}

/// `weight_grad += logits.t() @ hidden`: inside one matrix product on devices that accumulate halves so, else through
/// a product as large as the weight.
fn add_to_weight_gradient(weight_grad: &Tensor, logits: &Tensor, hidden: &Tensor) {
    let modern = hidden.context().ask(|device| device.compute_capability >= (8, 0));
    let accumulates = weight_grad.dtype() == DType::Float32 || weight_grad.dtype() == logits.dtype();
    if modern && logits.dtype().is_half() && accumulates {
        let hidden = hidden.to(logits.dtype());
        count_product(&logits.t(), &hidden, weight_grad);
    } else {
        logits.t().mm(hidden).float();
    }
}

#[cfg(test)]
mod tests {
    use super::chunk_rows;

    #[test]
    fn chunks_are_powers_of_two_up_to_all_rows() {
        let cases = [((1024, 256, 5000), 64), ((999, 128, 20_011), 8), ((16, 256, 100), 16), ((700, 512, 32_000), 16)];
        for ((rows, width, vocabulary), expected) in cases {
            assert_eq!(chunk_rows(rows, width, vocabulary), expected);
        }
    }
}
