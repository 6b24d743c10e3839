//! Softmax (SoftMax.cu): the result is saved; its backward holds grad * output while it runs.

use crate::dtype::DType;
use crate::tensor::{MAX_DIMS, NodeBuilder, Tensor, gradients};
use crate::trace::Category;

use super::ReduceKind;

impl Tensor {
    /// `softmax(self, dim=-1, dtype)`. Only fp16 to fp32 is done inside the kernel; other casts are copies.
    pub fn softmax(&self, dtype: Option<DType>) -> Tensor {
        let source = if dtype.is_none() { self.cast_to_float32() } else { self.clone() };
        let wanted = dtype.unwrap_or(source.dtype());
        let fused_cast = source.dtype() == DType::Float16 && wanted == DType::Float32;
        let input = if fused_cast { source } else { source.to(wanted) };
        let node = NodeBuilder::new("SoftmaxBackward0", &[&input]);
        let out = input.unary("_softmax.default", wanted);
        finish(node, out, input.dtype())
    }

    /// `_safe_softmax(self, dim=-1)` in its own dtype: rows that see nothing become zeros.
    pub(crate) fn safe_softmax(&self) -> Tensor {
        let op = "_safe_softmax.default";
        let node = NodeBuilder::new("SafeSoftmaxBackward0", &[self]);
        let out = self.unary("_softmax.default", self.dtype());
        {
            let _category = self.context().enter_category(Category::OpInternal);
            let masked = self.map(op, DType::Bool);
            let mut reduced = [false; MAX_DIMS];
            reduced[self.sizes().len() - 1] = true;
            let _masked_rows = masked.reduce(op, ReduceKind::Any, &reduced);
            let _zero = Tensor::scratch(self.context(), op, self.dtype().size());
        }
        finish(node, out, self.dtype())
    }
}

fn finish(node: NodeBuilder, out: Tensor, input_dtype: DType) -> Tensor {
    let result = node.save(&out);
    node.finish(out, move |grad| {
        let result = result.unpack();
        let op = "_softmax_backward_data.default";
        let out = grad.unary(op, input_dtype);
        let _product = Tensor::scratch(grad.context(), op, result.numel() * result.dtype().size());
        gradients![out]
    })
}
