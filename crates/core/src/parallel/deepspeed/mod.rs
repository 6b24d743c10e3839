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

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use crate::dtype::DType;
use crate::job::{DeepSpeed, Framework, JobSpec};
use crate::model::family::{ForwardCall, Model, ModelOutput};
use crate::model::nn::KvCache;
use crate::op::{UNTOLD, full};
use crate::optimizer::{self, Optimizer};
use crate::tensor::{Context, Layout, Tensor};
use crate::trace::Category;

use super::{Loaded, Wrapper};
use gradients::Gradients;
use partition::{Partition, Partitions};
pub(super) use stage3::{ZeroInference, ZeroStage3};
use step::{Group, ZeroOptimizer};

/// `DeepSpeedEngine.backward`: what it returns stays, and what it scales is what runs backward; whoever divides the loss himself
/// asks it not to.
fn scale_loss(loss: &Tensor, divides: bool) -> [Tensor; 2] {
    let divided = if divides { loss.div_scalar(UNTOLD) } else { loss.clone() };
    let scaled = divided.mul_scalar(UNTOLD);
    [divided, scaled]
}

/// A model in `DeepSpeedEngine`.
pub(super) struct ZeroStage12 {
    model: Rc<dyn Model>,
    parameters: Vec<Tensor>,
    gradients: Rc<Gradients>,
    /// This rank's part of each group in fp32.
    masters: RefCell<Vec<Tensor>>,
    _flats: Vec<Tensor>,
}

/// Whether the Trainer made the optimizer: what decays is a group of its own, before the rest.
const fn is_of_trainer(job: &JobSpec) -> bool {
    matches!(job.framework, Framework::Trainer | Framework::Trl)
}

impl ZeroStage12 {
    pub(super) fn new(job: &JobSpec, context: &Rc<Context>, loaded: Loaded, options: DeepSpeed) -> Self {
        if is_of_trainer(job) {
            move_from_host(context, &loaded);
        }
        let Loaded { model, mut parameters, .. } = loaded;
        let dtype = job.precision.weight_dtype();
        let in_groups = is_of_trainer(job);
        parameters.sort_by_key(|parameter| in_groups && !optimizer::decays(parameter));
        let groups: Vec<&[Tensor]> =
            parameters.chunk_by(|one, next| !in_groups || optimizer::decays(one) == optimizer::decays(next)).collect();
        let partitions = Partitions::new(&groups, job.parallel);
        let gradients = Rc::new(Gradients::new(context, parameters.clone(), dtype, partitions, options));
        let (mut flats, mut masters) = (Vec::new(), Vec::new());
        for (parameters, (_, partition)) in groups.into_iter().zip(gradients.partitions.groups()) {
            context.empty_cache();
            let flat = flatten_group(context, parameters, partition, dtype);
            masters.push(master_of(&gradients, &flat, partition.elements));
            flats.push(flat);
        }
        for (at, parameter) in parameters.iter().enumerate() {
            let gradients: Weak<Gradients> = Rc::downgrade(&gradients);
            parameter.register_post_accumulate_grad_hook(move || {
                if let Some(gradients) = gradients.upgrade() {
                    Gradients::process(&gradients, at);
                }
            });
        }
        // `initialize_optimizer_states` makes gradients and forgets them; the state comes with the first step.
        if gradients.offload().is_none() {
            let zeros = |master: &Tensor| full(context, "zeros.default", &[master.numel()], DType::Float32);
            drop(masters.iter().map(zeros).collect::<Vec<Tensor>>());
        }
        Self { model, parameters, gradients, masters: RefCell::new(masters), _flats: flats }
    }
}

/// `module.to(device)`: until here the Trainer has left the model on the host. Adapters come with the layers that they are put on.
fn move_from_host(context: &Rc<Context>, loaded: &Loaded) {
    let adapters = loaded.builder.adapters();
    let is_adapter = |parameter: &Tensor| adapters.iter().any(|adapter| adapter.is_same(parameter));
    let mut buffers: Vec<_> = loaded.buffers.iter().filter_map(Tensor::allocation).collect();
    buffers.sort_unstable();
    let mut buffers = buffers.into_iter().peekable();
    let mut moved = Vec::new();
    for parameter in &loaded.all_parameters {
        let Some(id) = parameter.allocation() else { continue };
        while let Some(buffer) = buffers.next_if(|buffer| *buffer < id && !is_adapter(parameter)) {
            moved.push(buffer);
        }
        moved.push(id);
    }
    moved.extend(buffers);
    context.move_to_end(&moved);
    context.arrange_allocations(&moved);
}

/// A group's weights end to end, which are views of it from then on.
fn flatten_group(context: &Rc<Context>, parameters: &[Tensor], partition: &Partition, dtype: DType) -> Tensor {
    let flat = {
        let _category = context.enter_category(Category::Parameter);
        let padding = partition.padding_of_all();
        let _pad = (padding > 0).then(|| full(context, "zeros.default", &[padding], dtype));
        full(context, "flatten_dense_tensors", &[partition.elements_of_all()], dtype)
    };
    for parameter in parameters {
        parameter.set_data(&flat.alias(Layout::contiguous(*parameter.sizes())));
    }
    flat
}

/// This rank's fp32 weights of a group: its partition is cloned, then cast.
fn master_of(gradients: &Gradients, flat: &Tensor, elements: u64) -> Tensor {
    let context = flat.context();
    if let Some(offload) = gradients.offload() {
        return offload.master(flat, elements);
    }
    let _category = context.enter_category(Category::Parameter);
    let clone = full(context, "clone.default", &[elements], flat.dtype());
    clone.to(DType::Float32).into_parameter()
}

impl Wrapper for ZeroStage12 {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        self.model.forward(call)
    }

    fn around(&self, forward: &mut dyn FnMut(&dyn Model) -> Vec<Tensor>) -> Option<Vec<Tensor>> {
        Some(forward(self.model.as_ref()))
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

    fn engine_loss(&self, loss: &Tensor, divides: bool) -> Option<[Tensor; 2]> {
        Some(scale_loss(loss, divides))
    }

    /// The step clips.
    fn clip_grad_norm(&self) {}

    fn optimizer(&self, job: &JobSpec) -> Box<dyn Optimizer> {
        let group = |master: Tensor| {
            let optimizer = optimizer::build(job, std::slice::from_ref(&master));
            Group { optimizer, master }
        };
        let groups = self.masters.take().into_iter().map(group).collect();
        Box::new(ZeroOptimizer::new(groups, Rc::clone(&self.gradients), job.clip_grad_norm.is_some()))
    }
}
