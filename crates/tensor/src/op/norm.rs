//! Layer normalization (layer_norm_kernel.cu): saves input, mean and reciprocal deviation.

use super::scratch::norm::{Norm, Wanted, backward, forward};
use super::scratch::{DeviceSteps, contiguous, run_steps};
use crate::dtype::DType;
use crate::tensor::{Gradients, NodeBuilder, Saved, Tensor};

impl Tensor {
    /// `layer_norm(self, weight, bias, eps)` over the last dimension; on autocast's fp32 list.
    pub fn layer_norm(&self, weight: &Tensor, bias: &Tensor, _eps: f64) -> Tensor {
        // The last argument first.
        let (bias, weight) = (bias.cast_to_float32(), weight.cast_to_float32());
        let input = self.cast_to_float32();
        normalize([&input, &weight, &bias])
    }

    /// The same without a bias.
    pub fn layer_norm_unbiased(&self, weight: &Tensor, _eps: f64) -> Tensor {
        normalize([&self.cast_to_float32(), &weight.cast_to_float32()])
    }

    /// `rms_norm(self, weight, eps)` over the last dimension: fused where both have one dtype.
    pub fn rms_norm(&self, weight: &Tensor, eps: f64) -> Tensor {
        if self.dtype() == weight.dtype() { fused_rms_norm(self, weight) } else { self.composed_rms_norm(weight, eps) }
    }

    /// `rms_norm_composite` (layer_norm.cpp)
    fn composed_rms_norm(&self, weight: &Tensor, eps: f64) -> Tensor {
        let upcasted_input = self.float();
        let inverse = {
            let mean = upcasted_input.pow_scalar(2.0).mean_last();
            mean.add_scalar_in_place(eps).rsqrt()
        };
        let mut upcasted_result = &upcasted_input * &inverse;
        upcasted_result = &upcasted_result * weight;
        upcasted_result.to(self.dtype())
    }

    /// The same without weight and bias.
    pub fn layer_norm_unweighted(&self, _eps: f64) -> Tensor {
        normalize([&self.cast_to_float32()])
    }
}

/// `native_layer_norm` of the input with its weight and bias, or of the input alone.
fn normalize<const N: usize>(inputs: [&Tensor; N]) -> Tensor {
    let (input, weight) = (inputs[0], inputs.get(1).copied());
    let node = NodeBuilder::new("NativeLayerNormBackward0", inputs);
    // The bias is handed to the backward, though no gradient needs it (derivatives.yaml).
    let saved_bias = inputs.get(2).map(|bias| node.save(bias));
    let (saved_input, saved_weight) = (node.save(input), weight.map(|weight| node.save(weight)));
    let op = "native_layer_norm.default";
    let norm = describe_norm(input, false);
    let statistics = input.sizes().with(input.sizes().len() - 1, 1);
    let sizes = *input.sizes();
    let mut outputs = run_steps(input.context(), op, &forward(&norm), |index| match index {
        0 => contiguous(sizes, norm.dtype),
        _ => contiguous(statistics, DType::Float32),
    });
    let out = outputs.take(0);
    let saved_statistics = [node.save(&outputs.take(1)), node.save(&outputs.take(2))];
    let needs = [0, 1, 2].map(|at| at < N && node.needs(at));
    node.finish(out, move |grad| {
        let _bias = saved_bias.as_ref().map(Saved::unpack);
        let input = saved_input.unpack();
        let weight = saved_weight.as_ref().map(Saved::unpack);
        let _statistics = [saved_statistics[0].unpack(), saved_statistics[1].unpack()];
        layer_norm_backward(grad, &input, weight.as_ref().unwrap_or(&input), &norm, needs).into_iter().take(N).collect()
    })
}

fn describe_norm(input: &Tensor, rms: bool) -> Norm {
    let (columns, contiguous) = (input.size(-1), input.is_contiguous());
    Norm { rows: input.numel() / columns, columns, dtype: input.dtype(), contiguous, rms }
}

/// `_fused_rms_norm`: saves input, weight and reciprocal deviation.
fn fused_rms_norm(input: &Tensor, weight: &Tensor) -> Tensor {
    let node = NodeBuilder::new("FusedRmsNormBackward0", [input, weight]);
    let saved = [node.save(input), node.save(weight)];
    let norm = describe_norm(input, true);
    let sizes = *input.sizes();
    let statistics = sizes.with(sizes.len() - 1, 1);
    let mut outputs = run_steps(input.context(), "_fused_rms_norm.default", &forward(&norm), |index| match index {
        0 => contiguous(sizes, norm.dtype),
        _ => contiguous(statistics, DType::Float32),
    });
    let out = outputs.take(0);
    let saved_statistics = node.save(&outputs.take(1));
    let needs = [node.needs(0), node.needs(1), false];
    node.finish(out, move |grad| {
        let [input, weight] = [saved[0].unpack(), saved[1].unpack()];
        let _statistics = saved_statistics.unpack();
        layer_norm_backward(grad, &input, &weight, &norm, needs).into_iter().take(2).collect()
    })
}

fn layer_norm_backward(grad: &Tensor, input: &Tensor, weight: &Tensor, norm: &Norm, needs: [bool; 3]) -> Gradients {
    let op = if norm.rms { "_fused_rms_norm_backward.default" } else { "native_layer_norm_backward.default" };
    let wanted = Wanted { grads: needs, grad_contiguous: grad.is_contiguous() };
    let steps = DeviceSteps::new(grad.context(), |device| backward(norm, wanted, device));
    grad.context().count_bytes(grad.bytes());
    let mut outputs = steps.run(grad.context(), op, |index| match index {
        0 => contiguous(*input.sizes(), input.dtype()),
        _ => contiguous(*weight.sizes(), weight.dtype()),
    });
    let mut wanted_gradients = (0..3).map(|at: u8| needs[at as usize].then(|| outputs.take(at).into()));
    wanted_gradients.by_ref().collect()
}
