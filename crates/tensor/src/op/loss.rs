//! Cross-entropy as `cross_entropy_loss` runs it: `log_softmax`, then `nll_loss` (SoftMax.cu, NLLLoss.cu).

use super::scratch::reduce::ReduceKind;
use super::scratch::softmax;
use super::scratch::{contiguous, run_steps};
use super::softmax::describe;
use crate::dtype::DType;
use crate::tensor::{Layout, NodeBuilder, Shape, Tensor, gradients};

/// What a loss makes of its rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    Mean,
    Sum,
    /// A value for each.
    None,
}

impl Tensor {
    /// `cross_entropy(self, target)` of [rows, classes].
    pub fn cross_entropy(&self, target: &Tensor, reduction: Reduction) -> Tensor {
        self.log_softmax().nll_loss(target, reduction)
    }

    /// `log_softmax(self, dim=-1)` in its own dtype (cross-entropy names it, so autocast leaves it).
    pub fn log_softmax(&self) -> Tensor {
        let node = NodeBuilder::new("LogSoftmaxBackward0", [self]);
        let steps = softmax::forward(&describe(self, self.dtype()));
        let describe_output = |_| contiguous(*self.sizes(), self.dtype());
        let out = run_steps(self.context(), "_log_softmax.default", &steps, describe_output).take(0);
        let result = node.save(&out);
        node.finish(out, move |grad| {
            let result = result.unpack();
            let steps = softmax::log_softmax_backward(&describe(grad, result.dtype()));
            let describe_output = |_| contiguous(*result.sizes(), result.dtype());
            grad.context().count_bytes(grad.bytes());
            gradients![run_steps(grad.context(), "_log_softmax_backward_data.default", &steps, describe_output).take(0)]
        })
    }

    /// `nll_loss(self, target)`; on autocast's fp32 list.
    pub fn nll_loss(&self, target: &Tensor, reduction: Reduction) -> Tensor {
        let log_probabilities = self.cast_to_float32();
        let node = NodeBuilder::new("NllLossBackward0", [&log_probabilities]);
        let (saved, saved_target) = (node.save(&log_probabilities), node.save(target));
        let op = "nll_loss_forward.default";
        let empty = |sizes| Tensor::empty(self.context(), op, sizes, log_probabilities.dtype());
        let out = match reduction {
            Reduction::Mean | Reduction::Sum => empty(Shape::new(&[])),
            Reduction::None => empty(*target.sizes()),
        };
        let total_weight = empty(Shape::new(&[]));
        let saved_weight = node.save(&total_weight);
        target.copy_inside(op);
        node.finish(out, move |_grad| {
            let input = saved.unpack();
            let (target, _weight) = (saved_target.unpack(), saved_weight.unpack());
            let op = "nll_loss_backward.default";
            let gradient = input.unary(op, input.dtype());
            target.copy_inside(op);
            gradients![gradient]
        })
    }

    /// The contiguous copy that a kernel makes of itself for as long as it runs (`expect_contiguous`), where it needs one.
    fn copy_inside(&self, op: &'static str) {
        if !self.is_contiguous() {
            drop(Self::scratch(self.context(), op, self.numel().saturating_mul(self.dtype().size())));
        }
    }

    /// `binary_cross_entropy_with_logits(self, target, reduction="sum")` (Loss.cpp)
    pub fn binary_cross_entropy_with_logits(&self, target: &Tensor) -> Tensor {
        let node = NodeBuilder::new("BinaryCrossEntropyWithLogitsBackward0", [self]);
        let saved = [node.save(self), node.save(target)];
        let log_sigmoid = self.unary("log_sigmoid_forward.default", self.dtype());
        let loss = target.unary("binary_cross_entropy_with_logits.default", target.dtype());
        let out = loss.reduce_all("sum.default", ReduceKind::Sum, loss.dtype());
        drop((loss, log_sigmoid));
        node.finish(out, move |_grad| {
            let [input, _target] = [saved[0].unpack(), saved[1].unpack()];
            gradients![input.unary("sigmoid.default", input.dtype())]
        })
    }

    /// `mse_loss(self, target)`: a mean of squares; the target is not differentiated. The result has been made as large as the input
    /// before it becomes a number, and keeps the memory (Loss.cpp, `TORCH_META_FUNC(mse_loss)`).
    pub fn mse_loss(&self, target: &Tensor) -> Tensor {
        let node = NodeBuilder::new("MseLossBackward0", [self]);
        let saved = [node.save(self), node.save(target)];
        let op = "mse_loss.default";
        let whole = self.unary(op, self.dtype());
        self.unary(op, self.dtype()).reduce_inside(op);
        let out = whole.alias_as(Layout::contiguous(Shape::new(&[])), false);
        drop(whole);
        node.finish(out, move |_grad| {
            let [input, _target] = [saved[0].unpack(), saved[1].unpack()];
            gradients![input.unary("mse_loss_backward.default", input.dtype())]
        })
    }

    /// `pad(labels, (0, 1), value=ignore_index)`: one more position, ignored by the loss.
    pub fn pad_labels(&self) -> Tensor {
        let last = self.sizes().len() - 1;
        let padded_sizes = self.sizes().with(last, self.size(-1) + 1);
        Tensor::empty(self.context(), "constant_pad_nd.default", padded_sizes, DType::Int64)
    }
}
