//! Liger's kernels for layers (liger-kernel 0.8.5, ops/rms_norm.py, swiglu.py, rope.py): Triton works in place where it can,
//! and so makes less than the modeling files' own ops. None of them is cast by autocast.

use super::scratch::reduce::ReduceKind;
use crate::dtype::DType;
use crate::tensor::{MAX_DIMS, NodeBuilder, Saved, Shape, Tensor, gradients};

impl Tensor {
    /// `LigerRMSNormFunction.apply(self, weight)`: keeps a number for each row; its gradient takes the place of the
    /// incoming one where `in_place`, and the weight's is summed up by multiprocessor first.
    pub fn liger_rms_norm(&self, weight: &Tensor, in_place: bool) -> Tensor {
        let x = self.contiguous();
        let node = NodeBuilder::new("LigerRMSNormFunctionBackward", [&x, weight]);
        let needs_weight = node.needs(1);
        let op = "LigerRMSNormFunction";
        let out = Tensor::empty(x.context(), op, *x.sizes(), x.dtype());
        let rows = x.numel() / x.size(-1).max(1);
        let rstd = Tensor::empty(x.context(), op, Shape::new(&[rows]), DType::Float32);
        let saved = [&x, weight, &rstd].map(|tensor| node.save(tensor));
        drop(rstd);
        node.finish(out, move |grad| {
            let [_x, weight, _rstd] = saved.each_ref().map(Saved::unpack);
            let grad = grad.contiguous();
            let partial = needs_weight.then(|| partial_weight_gradient(&weight));
            let input_grad = if in_place {
                grad.alias(grad.layout().clone())
            } else {
                grad.unary("zeros_like.default", grad.dtype())
            };
            let weight_grad = partial.map(|partial| sum_of_parts(&partial, &weight));
            gradients![input_grad, weight_grad]
        })
    }

    /// `LigerSiLUMulFunction.apply(self, up)` or `LigerGELUMulFunction`; their gradients take the places of what they saved.
    pub fn liger_act_mul(&self, up: &Tensor) -> Tensor {
        let (gate, up) = (self.contiguous(), up.contiguous());
        let node = NodeBuilder::new("LigerActMulFunctionBackward", [&gate, &up]);
        let saved = [&gate, &up].map(|tensor| node.save(&tensor.alias(tensor.layout().clone())));
        let out = gate.unary("empty_like.default", gate.dtype());
        node.finish(out, move |grad| {
            let _grad = grad.contiguous();
            let [gate, up] = saved.each_ref().map(Saved::unpack);
            gradients![gate.alias(gate.layout().clone()), up.alias(up.layout().clone())]
        })
    }
}

/// A row of sums for each multiprocessor.
fn partial_weight_gradient(weight: &Tensor) -> Tensor {
    let context = weight.context();
    let partial_sizes = Shape::new(&[context.ask(|device| device.multiprocessors), weight.numel()]);
    Tensor::empty(context, "LigerRMSNormFunctionBackward", partial_sizes, DType::Float32)
}

/// `_dW.sum(dim=0).to(W.dtype)`
fn sum_of_parts(partial: &Tensor, weight: &Tensor) -> Tensor {
    let mut first = [false; MAX_DIMS];
    first[0] = true;
    let sum = partial.reduce("sum.dim_IntList", ReduceKind::Sum, &first);
    let cast = sum.to(weight.dtype());
    cast.reshape(weight.sizes())
}

/// `LigerRopeFunction.apply(q, k, cos, sin)`: turns [batch, heads, tokens, head_dim] in place, and so their gradients.
pub fn liger_rope(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    let node = NodeBuilder::new("LigerRopeFunctionBackward", [q, k]);
    let saved = [cos, sin].map(|table| node.save(table));
    let turned = {
        let _no_grad = q.context().set_grad_enabled(false);
        [turn(q), turn(k)]
    };
    let [q, k] = node.finish_many(turned, move |grads| {
        let _tables = saved.each_ref().map(Saved::unpack);
        grads.iter().map(|grad| grad.as_ref().map(turn).map(Into::into)).collect()
    });
    (q, k)
}

/// The kernel reads rows of tokens: what does not lie so is copied.
fn turn(x: &Tensor) -> Tensor {
    x.transpose(1, 2).contiguous().transpose(1, 2)
}
