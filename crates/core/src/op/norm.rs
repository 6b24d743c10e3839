//! Layer normalization (layer_norm_kernel.cu): saves input, mean and reciprocal deviation.

use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Shape, Tensor, gradients};

impl Tensor {
    /// `layer_norm(self, weight, bias)` over the last dimension; on autocast's fp32 list.
    pub fn layer_norm(&self, weight: &Tensor, bias: &Tensor) -> Tensor {
        let input = self.cast_to_float32();
        let (weight, bias) = (weight.cast_to_float32(), bias.cast_to_float32());
        let node = NodeBuilder::new("NativeLayerNormBackward0", &[&input, &weight, &bias]);
        let (saved_input, saved_weight) = (node.save(&input), node.save(&weight));
        let op = "native_layer_norm.default";
        let stat_sizes: Shape = input.sizes().with(input.sizes().len() - 1, 1);
        let out = Tensor::empty(input.context(), op, *input.sizes(), input.dtype());
        let mean = Tensor::empty(input.context(), op, stat_sizes, DType::Float32);
        let rstd = Tensor::empty(input.context(), op, stat_sizes, DType::Float32);
        let (saved_mean, saved_rstd) = (node.save_output(&mean), node.save_output(&rstd));
        let needs = [node.needs(0), node.needs(1), node.needs(2)];
        node.finish(out, move |grad| {
            let (input, weight) = (saved_input.unpack(), saved_weight.unpack());
            let _statistics = (saved_mean.unpack(), saved_rstd.unpack());
            let op = "native_layer_norm_backward.default";
            let make = |like: &Tensor, needed: bool| {
                needed.then(|| Tensor::empty(like.context(), op, *like.sizes(), like.dtype()))
            };
            let (own, gamma) = (make(&input, needs[0]), make(&weight, needs[1]));
            let beta = make(&weight, needs[2]);
            let _ = grad;
            gradients![own, gamma, beta]
        })
    }
}
