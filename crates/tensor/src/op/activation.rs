//! Activations that are one op each (Activation.cpp): they save their input and nothing else.

use crate::tensor::{NodeBuilder, Tensor, gradients};

/// `gelu`'s `approximate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gelu {
    /// `none`
    Exact,
    /// `tanh`
    Tanh,
}

impl Tensor {
    /// `silu(self)`
    pub fn silu(&self) -> Tensor {
        self.activation("silu.default", "SiluBackward0", "silu_backward.default")
    }

    /// `gelu(self, approximate)`
    pub fn gelu(&self, _approximate: Gelu) -> Tensor {
        self.activation("gelu.default", "GeluBackward0", "gelu_backward.default")
    }

    /// `logsigmoid(self)`
    pub fn log_sigmoid(&self) -> Tensor {
        self.activation("log_sigmoid_forward.default", "LogSigmoidBackward0", "log_sigmoid_backward.default")
    }

    /// `softplus(self)`; on autocast's fp32 list.
    pub fn softplus(&self) -> Tensor {
        self.cast_to_float32().activation("softplus.default", "SoftplusBackward0", "softplus_backward.default")
    }

    fn activation(&self, op: &'static str, name: &'static str, backward: &'static str) -> Tensor {
        let node = NodeBuilder::new(name, [self]);
        let saved = node.save(self);
        let out = self.unary(op, self.dtype());
        node.finish(out, move |grad| {
            let input = saved.unpack();
            gradients![grad.binary(backward, &input, input.dtype())]
        })
    }

    /// `sigmoid(self)`; saves its result.
    pub fn sigmoid(&self) -> Tensor {
        let node = NodeBuilder::new("SigmoidBackward0", [self]);
        let out = self.unary("sigmoid.default", self.dtype());
        let result = node.save(&out);
        node.finish(out, move |grad| {
            let result = result.unpack();
            gradients![grad.binary("sigmoid_backward.default", &result, grad.dtype())]
        })
    }

    /// `relu(self)`; saves its result.
    pub fn relu(&self) -> Tensor {
        let node = NodeBuilder::new("ReluBackward0", [self]);
        let out = self.unary("relu.default", self.dtype());
        let result = node.save(&out);
        node.finish(out, move |grad| {
            let result = result.unpack();
            gradients![grad.binary("threshold_backward.default", &result, grad.dtype())]
        })
    }
}
