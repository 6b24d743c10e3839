//! What DeepSpeed's stage 3 (deepspeed/runtime/zero/stage3.py, 0.19.8) holds beside the shards of FSDP2, which stand for its fp32
//! weights: a rank's 16-bit weights, their gradients, and the buffer that gradients are reduced from, all its life long.

use std::rc::Rc;

use crate::dtype::DType;
use crate::job::DeepSpeed;
use crate::model::family::{ForwardCall, ModelOutput};
use crate::model::nn::KvCache;
use crate::op::full;
use crate::tensor::{Context, Tensor};
use crate::trace::Category;

use super::super::Wrapper;

/// A model that FSDP2 shards, with what stage 3 holds.
pub(in crate::parallel) struct ZeroStage3 {
    sharded: Box<dyn Wrapper>,
    _held: [Tensor; 3],
}

impl ZeroStage3 {
    pub(in crate::parallel) fn new(context: &Rc<Context>, sharded: Box<dyn Wrapper>, options: DeepSpeed) -> Self {
        let elements = sharded.parameters().iter().map(Tensor::numel).sum();
        let hold = |category, op, elements| {
            let _category = context.enter_category(category);
            full(context, op, &[elements], DType::Bfloat16)
        };
        let held = [
            hold(Category::Parameter, "empty.memory_format", elements),
            hold(Category::Communication, "empty.memory_format", options.reduce_bucket_size),
            hold(Category::Gradient, "zeros.default", elements),
        ];
        Self { sharded, _held: held }
    }
}

impl Wrapper for ZeroStage3 {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        self.sharded.forward(call)
    }

    fn new_cache(&self) -> Rc<KvCache> {
        self.sharded.new_cache()
    }

    fn parameters(&self) -> &[Tensor] {
        self.sharded.parameters()
    }

    fn set_gradient_sync(&self, sync: bool) {
        self.sharded.set_gradient_sync(sync);
    }

    fn clip_grad_norm(&self) {
        self.sharded.clip_grad_norm();
    }
}
