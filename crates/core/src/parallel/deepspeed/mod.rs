//! DeepSpeed's ZeRO stages 1 and 2 (deepspeed/runtime/zero/stage_1_and_2.py, 0.19.8): weights in one flat tensor, fp32 master
//! weights and optimizer state for a rank's partition of it, gradients reduced from a buffer of `reduce_bucket_size` elements.
//!
//! Stage 3 is in `stage3`. `partition` says what lies where, `gradients` is what hooks do in backward, `step` the optimizer, `offload`
//! what lies on the host.

mod gradients;
mod offload;
mod partition;
mod stage3;
mod step;

use std::rc::{Rc, Weak};

use crate::dtype::DType;
use crate::job::{DeepSpeed, JobSpec};
use crate::model::family::{ForwardCall, Model, ModelOutput};
use crate::model::nn::KvCache;
use crate::op::{UNTOLD, full};
use crate::optimizer::{self, Optimizer};
use crate::tensor::{Context, Layout, Tensor};
use crate::trace::Category;

use super::{Loaded, Wrapper};
use gradients::Gradients;
use partition::Partition;
pub(super) use stage3::ZeroStage3;
use step::ZeroOptimizer;

/// `DeepSpeedEngine.backward`: what it returns stays, and what it scales is what runs backward.
fn scale_loss(loss: &Tensor) -> [Tensor; 2] {
    let divided = loss.div_scalar(UNTOLD);
    let scaled = divided.mul_scalar(UNTOLD);
    [divided, scaled]
}

/// A model in `DeepSpeedEngine`.
pub(super) struct ZeroStage12 {
    model: Rc<dyn Model>,
    parameters: Vec<Tensor>,
    gradients: Rc<Gradients>,
    flat: Tensor,
}

impl ZeroStage12 {
    pub(super) fn new(job: &JobSpec, context: &Rc<Context>, loaded: Loaded, options: DeepSpeed) -> Self {
        let Loaded { model, parameters, .. } = loaded;
        let dtype = job.precision.weight_dtype();
        let partition = Partition::new(&parameters, job.parallel);
        context.empty_cache();
        let flat = {
            let _category = context.enter_category(Category::Parameter);
            let padding = partition.padding_of_all();
            let _pad = (padding > 0).then(|| full(context, "zeros.default", &[padding], dtype));
            full(context, "flatten_dense_tensors", &[partition.elements_of_all()], dtype)
        };
        for parameter in &parameters {
            parameter.set_data(&flat.alias(Layout::contiguous(*parameter.sizes())));
        }
        let gradients = Rc::new(Gradients::new(context, parameters.clone(), dtype, partition, options));
        for (at, parameter) in parameters.iter().enumerate() {
            let gradients: Weak<Gradients> = Rc::downgrade(&gradients);
            parameter.register_post_accumulate_grad_hook(move || {
                if let Some(gradients) = gradients.upgrade() {
                    Gradients::process(&gradients, at);
                }
            });
        }
        Self { model, parameters, gradients, flat }
    }

    /// This rank's fp32 weights: its partition is cloned, then cast.
    fn master(&self) -> Tensor {
        let context = self.flat.context();
        if let Some(offload) = self.gradients.offload() {
            return offload.master(&self.flat, self.gradients.partition.elements);
        }
        let _category = context.enter_category(Category::Parameter);
        let clone = full(context, "clone.default", &[self.gradients.partition.elements], self.flat.dtype());
        clone.to(DType::Float32).into_parameter()
    }
}

impl Wrapper for ZeroStage12 {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        self.model.forward(call)
    }

    fn new_cache(&self) -> Rc<KvCache> {
        self.model.new_cache()
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn set_gradient_sync(&self, sync: bool) {
        self.gradients.is_boundary.set(sync);
    }

    fn divides_loss(&self) -> bool {
        false
    }

    fn engine_loss(&self, loss: &Tensor) -> Option<[Tensor; 2]> {
        Some(scale_loss(loss))
    }

    /// The step clips.
    fn clip_grad_norm(&self) {}

    fn optimizer(&self, job: &JobSpec) -> Box<dyn Optimizer> {
        let master = self.master();
        // `initialize_optimizer_states` makes a gradient and forgets it; the state comes with the first step.
        if self.gradients.offload().is_none() {
            let elements = self.gradients.partition.elements;
            drop(full(self.flat.context(), "zeros.default", &[elements], DType::Float32));
        }
        let optimizer = optimizer::build(job.optimizer, std::slice::from_ref(&master));
        let clips = job.clip_grad_norm.is_some();
        Box::new(ZeroOptimizer::new(optimizer, master, Rc::clone(&self.gradients), clips))
    }
}
