//! Squares of an image: their averages (native/cuda/AveragePool2d.cu), and their numbers side by side (native/cuda/Im2Col.cu).

use crate::tensor::{NodeBuilder, Shape, Tensor, gradients};

impl Tensor {
    /// `avg_pool2d(self, kernel)` of [rows, channels, height, width], with a stride as large as the kernel.
    pub fn avg_pool2d(&self, kernel: u64) -> Tensor {
        let node = NodeBuilder::new("AvgPool2DBackward0", [self]);
        let saved = node.save(self);
        let [rows, channels, height, width] = [0, 1, 2, 3].map(|at| self.size(at));
        let sizes = Shape::new(&[rows, channels, height / kernel, width / kernel]);
        let out = Tensor::empty(self.context(), "avg_pool2d.default", sizes, self.dtype());
        node.finish(out, move |grad| {
            let (input, op) = (saved.unpack(), "avg_pool2d_backward.default");
            let of_input = Tensor::empty(grad.context(), op, *input.sizes(), grad.dtype());
            let _contiguous =
                (!grad.is_contiguous()).then(|| Tensor::empty(grad.context(), op, *grad.sizes(), grad.dtype()));
            gradients![of_input]
        })
    }
}

impl Tensor {
    /// `unfold(self, kernel_size=side, stride=side)` of [1, channels, height, width], without the first dimension.
    pub fn unfold_squares(&self, side: u64) -> Tensor {
        let node = NodeBuilder::new("Im2ColBackward0", [self]);
        let [channels, height, width] = [1, 2, 3].map(|at| self.size(at));
        let sizes = Shape::new(&[channels * side * side, (height / side) * (width / side)]);
        let op = "im2col.default";
        let out = Tensor::empty(self.context(), op, sizes, self.dtype());
        {
            let _contiguous =
                (!self.is_contiguous()).then(|| Tensor::empty(self.context(), op, *self.sizes(), self.dtype()));
        }
        let from = *self.sizes();
        node.finish(out, move |grad| {
            let op = "col2im.default";
            let _contiguous =
                (!grad.is_contiguous()).then(|| Tensor::empty(grad.context(), op, *grad.sizes(), grad.dtype()));
            gradients![Tensor::empty(grad.context(), op, from, grad.dtype())]
        })
    }
}
