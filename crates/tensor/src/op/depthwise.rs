//! A convolution of each channel by itself (Convolution.cpp, `CudaDepthwise2d`).

use crate::dtype::DType;
use crate::key;
use crate::tensor::{NodeBuilder, Tensor, cast_arguments, gradients};

/// Numbers of a tensor beyond which PyTorch leaves its own kernel for cuDNN's (`canUse32BitIndexMath`).
const NUMBERS: u64 = i32::MAX as u64;

impl Tensor {
    /// `F.conv1d(self, weight, bias, padding=padding, groups=channels)` of a weight [channels, 1, width]: the native kernel of bf16 and
    /// fp32, which both passes give a contiguous input.
    pub fn depthwise_conv1d(&self, weight: &Tensor, bias: Option<&Tensor>, padding: u64) -> Tensor {
        let (input, weight, bias) = match bias {
            Some(bias) => {
                let [input, weight, bias] = cast_arguments([self, weight, bias]);
                (input, weight, Some(bias))
            }
            None => {
                let [input, weight] = cast_arguments([self, weight]);
                (input, weight, None)
            }
        };
        if input.dtype() == DType::Float16 || input.numel() > NUMBERS {
            input.context().fail_unsimulated(&[key::PRECISION], || {
                "in fp16, and of more than 2,147,483,647 numbers, cuDNN convolves the channels, with a workspace that is not known: bf16 \
                 and amp-bf16 are simulated"
                    .to_owned()
            });
        }
        let arguments: Vec<&Tensor> = [&input, &weight].into_iter().chain(&bias).collect();
        let node = NodeBuilder::new("ConvolutionBackward0", &arguments);
        let needs = [node.needs(0), node.needs(1), bias.is_some() && node.needs(2)];
        let saved = [node.save(&input), node.save(&weight)];
        let op = "convolution.default";
        let contiguous =
            |input: &Tensor, op| (!input.is_contiguous()).then(|| Tensor::scratch(input.context(), op, input.bytes()));
        let _contiguous = contiguous(&input, op);
        let tokens = (input.size(2) + 2 * padding + 1).saturating_sub(weight.size(2));
        let out = Tensor::empty(input.context(), op, input.sizes().with(2, tokens), input.dtype());
        input.context().count_bytes(input.bytes());
        node.finish(out, move |grad| {
            let [input, weight] = saved.each_ref().map(|saved| saved.unpack());
            let op = "convolution_backward.default";
            let _contiguous = contiguous(&input, op);
            let new = |of: &Tensor| Tensor::empty(of.context(), op, *of.sizes(), grad.dtype());
            let weight_grad = needs[1].then(|| new(&weight));
            let input_grad = needs[0].then(|| new(&input));
            let bias_grad = needs[2].then(|| grad.unsqueeze(2).sum_of_channels(op));
            gradients![input_grad, weight_grad, bias_grad]
        })
    }
}
