//! Convolution over images (native/Convolution.cpp) through cuDNN, whose workspace nobody documents: it is none here, as over the
//! phantom, and the estimate's range allows for one.

use super::matmul::count_sums;
use crate::tensor::{NodeBuilder, Shape, Tensor, cast_arguments, gradients};

/// What its result is called in a trace.
pub(crate) const CONVOLUTION: &str = "convolution.default";
const BACKWARD: &str = "convolution_backward.default";

impl Tensor {
    /// `conv2d(self, weight, bias, stride)` of [rows, channels, height, width] without padding.
    pub(crate) fn conv2d(&self, weight: &Tensor, bias: &Tensor, stride: [u64; 2]) -> Tensor {
        let [input, weight, bias] = cast_arguments([self, weight, bias]);
        let node = NodeBuilder::new("ConvolutionBackward0", [&input, &weight, &bias]);
        let (saved_input, saved_weight) = (node.save(&input), node.save(&weight));
        let needs = [0, 1, 2].map(|at| node.needs(at));
        let outputs =
            |at: usize| (input.sizes()[at + 2].saturating_sub(weight.sizes()[at + 2])) / stride[at].max(1) + 1;
        let sizes = Shape::new(&[input.size(0), weight.size(0), outputs(0), outputs(1)]);
        let out = Tensor::empty(self.context(), CONVOLUTION, sizes, input.dtype());
        count_sums(weight.numel() / weight.size(0).max(1), [&input, &weight], &out);
        node.finish(out, move |grad| {
            let (input, weight) = (saved_input.unpack(), saved_weight.unpack());
            let (input_grad, weight_grad) = {
                let _contiguous = (!grad.is_contiguous() && (needs[0] || needs[1]))
                    .then(|| Tensor::empty(grad.context(), BACKWARD, *grad.sizes(), grad.dtype()));
                let like = |other: &Tensor| Tensor::empty(grad.context(), BACKWARD, *other.sizes(), other.dtype());
                (needs[0].then(|| like(&input)), needs[1].then(|| like(&weight)))
            };
            let bias_grad = needs[2].then(|| grad.sum_of_channels(BACKWARD));
            gradients![input_grad, weight_grad, bias_grad]
        })
    }
}
