//! TRL's log-probabilities of chosen tokens from whole logits (trl 1.16, kernels/logprob_entropy.py), in one pass over them; and
//! logarithms, which the losses of preference trainers take of them.

use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Saved, Tensor, gradients};

/// `selective_log_softmax(logits, index)`: one number a row, in fp32; the gradient of the logits is made whole.
pub fn selective_log_softmax(logits: &Tensor, index: &Tensor) -> Tensor {
    let node = NodeBuilder::new("_LogProbEntropyFunctionBackward", [logits]);
    let empty = |op| Tensor::empty(logits.context(), op, *index.sizes(), DType::Float32);
    let log_probs = empty("empty.memory_format");
    let [entropy, log_z, expected_logit] = [(); 3].map(|()| empty("empty_like.default"));
    logits.context().count_bytes(logits.bytes());
    let saved = [logits, index, &log_z, &expected_logit].map(|tensor| node.save(tensor));
    drop((log_z, expected_logit));
    let out = node.finish(log_probs, move |grad| {
        let [logits, _index, _log_z, _expected_logit] = saved.each_ref().map(Saved::unpack);
        grad.context().count_bytes(logits.bytes());
        let logits_grad = Tensor::empty(grad.context(), "empty_like.default", *logits.sizes(), logits.dtype());
        grad.contiguous();
        gradients![logits_grad]
    });
    drop(entropy);
    out
}

impl Tensor {
    /// `log1p(self)`
    pub fn log1p(&self) -> Tensor {
        let node = NodeBuilder::new("Log1PBackward0", [self]);
        let saved = node.save(self);
        let out = self.unary("log1p.default", self.dtype());
        node.finish(out, move |grad| {
            let divisor = saved.unpack().unary("add.Scalar", grad.dtype());
            gradients![grad.binary("div.Tensor", &divisor, grad.dtype())]
        })
    }

    /// `expm1(self)`; saves its result.
    pub fn expm1(&self) -> Tensor {
        let node = NodeBuilder::new("Expm1Backward0", [self]);
        let out = self.unary("expm1.default", self.dtype());
        let result = node.save(&out);
        node.finish(out, move |grad| {
            let derivative = result.unpack().unary("add.Scalar", grad.dtype());
            gradients![grad.mul(&derivative)]
        })
    }
}
