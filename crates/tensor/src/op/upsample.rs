//! Nearest neighbours (UpSampleNearest2d.cu): an image of other sizes, of which nothing is saved.

use crate::tensor::{NodeBuilder, Shape, Tensor, gradients};

impl Tensor {
    /// `interpolate(self, size=sizes, mode="nearest")` of [rows, channels, height, width]; on autocast's fp32 list.
    pub fn upsample_nearest(&self, [height, width]: [u64; 2]) -> Tensor {
        let input = self.cast_to_float32();
        let node = NodeBuilder::new("UpsampleNearest2DBackward0", [&input]);
        let from = *input.sizes();
        let sizes = Shape::new(&[from[0], from[1], height, width]);
        let out = Tensor::empty(input.context(), "upsample_nearest2d.vec", sizes, input.dtype());
        node.finish(out, move |grad| {
            let op = "upsample_nearest2d_backward.default";
            let gradient = Tensor::empty(grad.context(), op, from, grad.dtype());
            let _contiguous = grad.contiguous();
            gradients![gradient]
        })
    }
}
