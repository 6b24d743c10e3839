//! Pipeline parallelism: a rank runs its layers on one micro-batch after another, and keeps the activations of those whose
//! gradients have not come back yet. A micro-batch is a pass of gradient accumulation. `step/pipeline` runs PyTorch's schedules themselves.

use std::rc::Rc;

use crate::job::{JobSpec, Schedule};
use crate::model::family::{ForwardCall, Model, ModelOutput};
use crate::model::nn::KvCache;
use crate::tensor::Tensor;

use super::{Loaded, Wrapper};

pub(super) struct PipelineStage {
    model: Rc<dyn Model>,
    parameters: Vec<Tensor>,
    is_last: bool,
    in_flight: u64,
}

impl PipelineStage {
    pub(super) fn new(job: &JobSpec, loaded: Loaded, stages: u64, schedule: Schedule) -> Self {
        let passes = job.gradient_accumulation_steps;
        let (_, stage) = job.parallel.place_in_pipeline();
        let in_flight = match schedule {
            Schedule::GPipe => passes,
            // A stage warms up with one forward pass for each stage behind it. Interleaved stages are never approximated.
            Schedule::OneForwardOneBackward | Schedule::Interleaved => passes.min(stages - stage),
        };
        let is_last = stage + 1 == stages;
        Self { model: loaded.model, parameters: loaded.parameters, is_last, in_flight }
    }
}

impl Wrapper for PipelineStage {
    /// The last stage has the loss; another one's output stands in its place, and backward begins with its gradient.
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        if self.is_last {
            return self.model.forward(call);
        }
        ModelOutput {
            loss: Some(self.model.hidden_states(call)),
            logits: None,
            cache: None,
            router: None,
            more: Vec::new(),
        }
    }

    fn new_cache(&self) -> Rc<KvCache> {
        self.model.new_cache()
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn in_flight(&self) -> u64 {
        self.in_flight
    }

    fn divides_loss(&self) -> bool {
        self.is_last
    }
}
