//! Convolution over images and videos (native/Convolution.cpp) through cuDNN, whose workspace nobody documents: it is none here, as over the
//! phantom, and the estimate's range allows for one.

use super::matmul::count_sums;
use crate::tensor::{NodeBuilder, Shape, Tensor, cast_arguments};

/// What its result is called in a trace.
pub const CONVOLUTION: &str = "convolution.default";
const BACKWARD: &str = "convolution_backward.default";

impl Tensor {
    /// `conv2d(self, weight, bias, stride)` of [rows, channels, height, width] without padding.
    pub fn conv2d(&self, weight: &Tensor, bias: Option<&Tensor>, stride: [u64; 2]) -> Tensor {
        match bias {
            Some(bias) => convolve(cast_arguments([self, weight, bias]), &stride, 0),
            None => convolve(cast_arguments([self, weight]), &stride, 0),
        }
    }

    /// The same between margins of so many zeros.
    pub fn conv2d_padded(&self, weight: &Tensor, bias: &Tensor, stride: u64, padding: u64) -> Tensor {
        convolve(cast_arguments([self, weight, bias]), &[stride; 2], padding)
    }

    /// `pad(self, (0, 1, 0, 1))` of [rows, channels, height, width], outside autograd.
    pub fn pad_corner(&self) -> Tensor {
        let [rows, channels, height, width] = [0, 1, 2, 3].map(|at| self.size(at));
        let sizes = Shape::new(&[rows, channels, height + 1, width + 1]);
        Tensor::empty(self.context(), "constant_pad_nd.default", sizes, self.dtype())
    }

    /// `conv3d(self, weight, bias, stride)` of [rows, channels, time, height, width] without padding.
    pub fn conv3d(&self, weight: &Tensor, bias: Option<&Tensor>, stride: [u64; 3]) -> Tensor {
        match bias {
            Some(bias) => convolve(cast_arguments([self, weight, bias]), &stride, 0),
            None => convolve(cast_arguments([self, weight]), &stride, 0),
        }
    }

    /// `conv1d(self, weight, bias, stride, padding)` of [rows, channels, time].
    pub fn convolve_time(&self, weight: &Tensor, bias: &Tensor, stride: u64, padding: u64) -> Tensor {
        convolve(cast_arguments([self, weight, bias]), &[stride], padding)
    }
}

/// Input and weight, and a bias if there is one.
fn convolve<const N: usize>(inputs: [Tensor; N], stride: &[u64], padding: u64) -> Tensor {
    let (input, weight) = (&inputs[0], &inputs[1]);
    let node = NodeBuilder::new("ConvolutionBackward0", inputs.each_ref());
    let (saved_input, saved_weight) = (node.save(input), node.save(weight));
    let needs = [0, 1, 2].map(|at| at < N && node.needs(at));
    let output = |(at, stride): (usize, &u64)| {
        (input.sizes()[at + 2] + 2 * padding).saturating_sub(weight.sizes()[at + 2]) / (*stride).max(1) + 1
    };
    let sizes: Vec<u64> =
        [input.size(0), weight.size(0)].into_iter().chain(stride.iter().enumerate().map(output)).collect();
    let sizes = Shape::new(&sizes);
    let out = Tensor::empty(input.context(), CONVOLUTION, sizes, input.dtype());
    count_sums(weight.numel() / weight.size(0).max(1), [input, weight], &out);
    node.finish(out, move |grad| {
        let (input, weight) = (saved_input.unpack(), saved_weight.unpack());
        let (input_grad, weight_grad) = {
            let _contiguous = (!grad.is_contiguous() && (needs[0] || needs[1]))
                .then(|| Tensor::empty(grad.context(), BACKWARD, *grad.sizes(), grad.dtype()));
            let like = |other: &Tensor| Tensor::empty(grad.context(), BACKWARD, *other.sizes(), other.dtype());
            (needs[0].then(|| like(&input)), needs[1].then(|| like(&weight)))
        };
        let bias_grad = needs[2].then(|| grad.sum_of_channels(BACKWARD));
        [input_grad, weight_grad, bias_grad].into_iter().take(N).map(|grad| grad.map(Into::into)).collect()
    })
}
