//! A model that `Accelerator.prepare` has wrapped (accelerate 1.15, accelerator.py): its forward runs under autocast, and
//! half-precision outputs are converted to fp32 when it is over.

use std::rc::Rc;

use crate::dtype::DType;
use crate::model::family::{ForwardCall, Model, ModelOutput};
use crate::model::nn::{KvCache, Linear, RouterLoss};
use crate::op::TokenOutputs;
use crate::tensor::{Context, Tensor};

/// The wrapped model.
pub(super) struct Prepared<'a> {
    pub context: &'a Rc<Context>,
    pub model: &'a dyn Model,
    /// `None` without mixed precision: the forward is the model's own.
    pub autocast: Option<DType>,
    /// What its fused head returns beside log-probabilities.
    pub head_outputs: TokenOutputs,
}

/// `convert_outputs_to_fp32`, which a forward under autocast ends with.
pub(super) fn convert_outputs_to_fp32(output: &ModelOutput) -> ModelOutput {
    let convert = |tensor: &Option<Tensor>| tensor.as_ref().map(Tensor::float);
    ModelOutput {
        loss: convert(&output.loss),
        logits: convert(&output.logits),
        cache: output.cache.clone(),
        router: output.router.as_ref().map(|router| router.map(Tensor::float)),
        more: output
            .more
            .iter()
            .map(|tensor| if tensor.dtype().is_floating_point() { tensor.float() } else { tensor.clone() })
            .collect(),
    }
}

impl Model for Prepared<'_> {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let output = {
            let _autocast = self.context.autocast(self.autocast);
            self.model.forward(call)
        };
        if self.autocast.is_some() { convert_outputs_to_fp32(&output) } else { output }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        let _autocast = self.context.autocast(self.autocast);
        self.model.hidden_states(call)
    }

    fn base_outputs(&self, call: &ForwardCall) -> (Tensor, Option<Tensor>) {
        let _autocast = self.context.autocast(self.autocast);
        self.model.base_outputs(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        self.model.output_embeddings()
    }

    fn router(&self) -> Option<Rc<RouterLoss>> {
        self.model.router()
    }

    fn new_cache(&self) -> Rc<KvCache> {
        self.model.new_cache()
    }
}
