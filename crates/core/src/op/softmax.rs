//! Softmax (SoftMax.cu): the result is saved; its backward holds grad * output while it runs.

use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Tensor, gradients};

impl Tensor {
    /// `softmax(self, dim=-1, dtype)`. Only fp16 to fp32 is done inside the kernel; other casts are copies.
    pub fn softmax(&self, dtype: Option<DType>) -> Tensor {
        let source = if dtype.is_none() { self.cast_to_float32() } else { self.clone() };
        let wanted = dtype.unwrap_or(source.dtype());
        let fused_cast = source.dtype() == DType::Float16 && wanted == DType::Float32;
        let input = if fused_cast { source } else { source.to(wanted) };
        let node = NodeBuilder::new("SoftmaxBackward0", &[&input]);
        let out = input.unary("_softmax.default", wanted);
        let result = node.save_output(&out);
        let input_dtype = input.dtype();
        node.finish(out, move |grad| {
            let result = result.unpack();
            let op = "_softmax_backward_data.default";
            let out = grad.unary(op, input_dtype);
            let _product = Tensor::scratch(grad.context(), op, result.numel() * result.dtype().size());
            gradients![out]
        })
    }
}
