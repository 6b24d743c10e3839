//! Softmax (SoftMax.cu): the result is saved; its backward holds grad * output while it runs.

use super::scratch::softmax::{self, Softmax};
use super::scratch::{DeviceSteps, contiguous, run_steps};
use crate::dtype::DType;
use crate::tensor::{Layout, NodeBuilder, Tensor, gradients, is_autocast};

/// A softmax that reads `input` and writes `output`.
pub(super) fn describe(input: &Tensor, output: DType) -> Softmax {
    let columns = input.size(-1);
    Softmax {
        rows: input.numel() / columns.max(1),
        columns,
        input: input.dtype(),
        output,
        contiguous: input.is_contiguous(),
    }
}

impl Tensor {
    /// `softmax(self, dim=-1, dtype)`; autocast sets the dtype to fp32 where none is given. Only fp16 to fp32 is done
    /// inside the kernel; other casts are copies.
    pub fn softmax(&self, dtype: Option<DType>) -> Tensor {
        let autocast = if is_autocast(self) { DType::Float32 } else { self.dtype() };
        let wanted = dtype.unwrap_or(autocast);
        let fused_cast = self.dtype() == DType::Float16 && wanted == DType::Float32;
        let input = if fused_cast { self.clone() } else { self.to(wanted) };
        let node = NodeBuilder::new("SoftmaxBackward0", [&input]);
        let steps = softmax::forward(&describe(&input, wanted));
        let out =
            run_steps(input.context(), "_softmax.default", &steps, |_| contiguous(*input.sizes(), wanted)).take(0);
        finish(node, out, input.dtype())
    }

    /// `_safe_softmax(self, dim=-1)` in its own dtype: rows that see nothing become zeros.
    pub fn safe_softmax(&self) -> Tensor {
        let node = NodeBuilder::new("SafeSoftmaxBackward0", [self]);
        let described = describe(self, self.dtype());
        let steps = DeviceSteps::new(self.context(), |device| softmax::safe_softmax(&described, device));
        let describe_output = |_| contiguous(*self.sizes(), self.dtype());
        let out = steps.run(self.context(), "_safe_softmax.default", describe_output).take(0);
        finish(node, out, self.dtype())
    }
}

fn finish<'a>(node: NodeBuilder<'a, [&'a Tensor; 1]>, out: Tensor, input_dtype: DType) -> Tensor {
    let result = node.save(&out);
    node.finish(out, move |grad| {
        let result = result.unpack();
        let op = "_softmax_backward_data.default";
        // The kernel reads their product: dense, where a gradient is one number for many.
        let product = Layout::elementwise(*result.sizes(), [grad.layout(), result.layout()]);
        let described = Softmax { contiguous: product.is_contiguous(), ..describe(grad, input_dtype) };
        let steps = softmax::softmax_backward(&described);
        let describe_output = |_| contiguous(*result.sizes(), input_dtype);
        grad.context().count_bytes(grad.bytes());
        gradients![run_steps(grad.context(), op, &steps, describe_output).take(0)]
    })
}
