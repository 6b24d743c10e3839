//! Group normalization (group_norm.cpp, cuda/group_norm_kernel.cu): saves input, weight, mean and reciprocal deviation.

use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Scratch, Shape, Tensor};

const FORWARD: &str = "native_group_norm.default";
const BACKWARD: &str = "native_group_norm_backward.default";

impl Tensor {
    /// `group_norm(self, groups, weight, bias)` of [rows, channels, ...]; on autocast's fp32 list.
    pub fn group_norm(&self, groups: u64, weight: &Tensor, bias: &Tensor) -> Tensor {
        // The last argument first.
        let (bias, weight) = (bias.cast_to_float32(), weight.cast_to_float32());
        let input = self.cast_to_float32().contiguous();
        input.normalize_groups(groups, &weight, &bias)
    }

    fn normalize_groups(&self, groups: u64, weight: &Tensor, bias: &Tensor) -> Tensor {
        let node = NodeBuilder::new("NativeGroupNormBackward0", [self, weight, bias]);
        let saved = [node.save(self), node.save(weight)];
        let (rows, channels) = (self.size(0), self.size(1));
        let statistics = if self.dtype() == weight.dtype() { self.dtype() } else { DType::Float32 };
        let empty = |sizes: &[u64], dtype| Tensor::empty(self.context(), FORWARD, Shape::new(sizes), dtype);
        let out = empty(self.sizes(), self.dtype());
        let statistics = [(); 2].map(|()| empty(&[rows, groups], statistics));
        let saved_statistics = statistics.each_ref().map(|statistics| node.save(statistics));
        // Scale and shift of each row's channels, in fp32.
        let _fused = [(); 2].map(|()| scratch(self, FORWARD, rows * channels));
        let needs = [0, 1, 2].map(|at| node.needs(at));
        node.finish(out, move |grad| {
            let [input, weight] = [saved[0].unpack(), saved[1].unpack()];
            let _statistics = [saved_statistics[0].unpack(), saved_statistics[1].unpack()];
            let grad = grad.contiguous();
            let like = |other: &Tensor| Tensor::empty(grad.context(), BACKWARD, *other.sizes(), other.dtype());
            let gradients = [&input, &weight, &weight].into_iter().zip(needs);
            let gradients: Vec<_> = gradients.map(|(other, needed)| needed.then(|| like(other))).collect();
            let _sums = [(); 2].map(|()| scratch(&grad, BACKWARD, rows * channels));
            if needs[0] {
                let _of_groups = [(); 2].map(|()| scratch(&grad, BACKWARD, rows * groups));
                let _of_channels = scratch(&grad, BACKWARD, rows * channels);
            }
            gradients.into_iter().map(|gradient| gradient.map(Into::into)).collect()
        })
    }
}

/// Memory for so many fp32 numbers while a kernel runs.
fn scratch(tensor: &Tensor, op: &'static str, count: u64) -> Scratch {
    Tensor::scratch(tensor.context(), op, count.saturating_mul(DType::Float32.size()))
}
