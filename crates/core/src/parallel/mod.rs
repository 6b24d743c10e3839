//! Wrappers round a model that spread training over ranks, a file each: what `step` calls in place of the bare model.
//!
//! One more strategy is one file here and one line in [`wrap_model`]. A wrapper gets the loaded model in phase `wrap` and
//! acts where PyTorch's does: round the forward call, in the hooks that `AccumulateGrad` and the engine run
//! ([`Tensor::register_post_accumulate_grad_hook`], [`Context::queue_callback`]), and when the optimizer is made.

mod broadcast;
mod buckets;
mod data_parallel;
mod ddp;
mod deepspeed;
mod fsdp1;
mod fsdp2;
mod pipeline;
mod reducer;
mod share;
mod stage;
mod tensor;
mod zero1;

use std::rc::Rc;

use crate::building::{BuildError, Builder, ModuleHooks, Parts, Placed, Sharding};
use crate::job::{DeepSpeed, Framework, JobSpec, Parallel, Precision, StageReplicas, StageWrapper, Strategy};
use crate::model::family::{ForwardCall, Model, ModelOutput};
use crate::model::nn::KvCache;
use crate::optimizer::{self, Optimizer};
use crate::tensor::{Context, Tensor};
use crate::trace::PhaseKind;

pub(crate) use ddp::DdpHooks;
pub(crate) use fsdp1::gathered_layer;
pub(crate) use share::{share_of_rank, stage_of_pipeline};
pub(crate) use stage::wrap_stages;

use data_parallel::DataParallel;
use ddp::DistributedDataParallel;
use deepspeed::{ZeroInference, ZeroStage3, ZeroStage12};
use pipeline::PipelineStage;
use tensor::DividedLayers;
use zero1::Zero1;

/// A model on the device of the rank that is simulated.
pub(crate) struct Loaded {
    /// The model as it was built, before any wrapper; who trains it may call it without.
    pub model: Rc<dyn Model>,
    /// Its trained parameters, in the order `model.parameters()` lists them.
    pub parameters: Vec<Tensor>,
    /// All its parameters, in the same order.
    pub all_parameters: Vec<Tensor>,
    /// In the order of `model.buffers()`.
    pub buffers: Vec<Tensor>,
    /// All its tensors, where the model is sharded.
    pub placed: Vec<Placed>,
    /// Its builder, and how it is built once more.
    pub builder: Builder,
    pub rebuild: Rebuild,
}

/// Builds the job's model with a builder.
pub(crate) type Rebuild = Box<dyn Fn(&Builder) -> Result<Box<dyn Model>, BuildError>>;

impl Loaded {
    pub(crate) fn new(model: impl Into<Rc<dyn Model>>, builder: &Builder, rebuild: Rebuild) -> Self {
        let (parameters, all_parameters) = (builder.trainable(), builder.parameters());
        let (buffers, placed) = (builder.take_buffers(), builder.take_placed());
        let model = model.into();
        Self { model, parameters, all_parameters, buffers, placed, builder: builder.clone(), rebuild }
    }
}

/// A model with its wrapper.
pub(crate) trait Wrapper {
    /// `wrapper(input_ids, labels=...)`
    fn forward(&self, call: &ForwardCall) -> ModelOutput;

    /// Runs what a program has patched into the wrapped model's forward where the wrapper would call that; what it does to
    /// the tensors that are returned, or `None` where it cannot, and nothing was run.
    fn around(&self, _forward: &mut dyn FnMut(&dyn Model) -> Vec<Tensor>) -> Option<Vec<Tensor>> {
        None
    }

    /// The same where what runs reads the head's weight itself, as TRL's fused head does.
    fn around_fused(&self, forward: &mut dyn FnMut(&dyn Model) -> Vec<Tensor>) -> Option<Vec<Tensor>> {
        self.around(forward)
    }

    /// The cache that `DynamicCache(config)` is for this model.
    fn new_cache(&self) -> Rc<KvCache>;

    /// What is clipped, stepped and loses its gradients in `zero_grad`: `wrapper.parameters()`.
    fn parameters(&self) -> &[Tensor];

    /// Whether the gradients of the passes that follow are reduced: entering and leaving `no_sync()`, or
    /// `set_requires_gradient_sync`.
    fn set_gradient_sync(&self, _sync: bool) {}

    /// Rows of a forward pass of the process, of so many on each GPU.
    fn rows(&self, micro_batch_size: u64) -> u64 {
        micro_batch_size
    }

    /// Whether it keeps anything from pass to pass beside gradients.
    fn remembers_passes(&self) -> bool {
        true
    }

    /// How many forward passes stand open before the first of them runs backward.
    fn in_flight(&self) -> u64 {
        1
    }

    /// Whether a pass ends in a loss, which gradient accumulation divides.
    fn divides_loss(&self) -> bool {
        true
    }

    /// What an engine makes of a loss that it is told to run backward from: what it returns, and what runs. It divides it by the
    /// passes of a step, if it is to.
    fn engine_loss(&self, _loss: &Tensor, _divides: bool) -> Option<[Tensor; 2]> {
        None
    }

    /// What an engine does when its backward pass is over.
    fn end_backward(&self) {}

    /// What a training loop does to the loss that the wrapper returns.
    fn reduce_loss(&self, loss: Tensor) -> Tensor {
        loss
    }

    /// `clip_grad_norm_(wrapper.parameters(), ...)`
    fn clip_grad_norm(&self) {
        optimizer::clip_grad_norm(self.parameters());
    }

    /// The same with the norm that the Trainer keeps to log it, where the wrapper has one to return.
    fn clip_for_log(&self) -> Option<Tensor> {
        self.clip_grad_norm();
        None
    }

    /// Whether its optimizer and norms are its own, and not those of any loop over its parameters.
    fn divides_optimizer(&self) -> bool {
        true
    }

    /// The optimizer over its parameters.
    fn optimizer(&self, job: &JobSpec) -> Box<dyn Optimizer> {
        optimizer::build(job, self.parameters())
    }

    /// The optimizer as the Trainer makes it, a group after the other.
    fn optimizers(&self, job: &JobSpec) -> Vec<Box<dyn Optimizer>> {
        vec![self.optimizer(job)]
    }
}

/// A stage on the device of the rank that is simulated.
pub(crate) struct LoadedStage {
    pub model: Box<dyn Model>,
    /// All its parameters, in the order `stage.parameters()` lists them.
    pub parameters: Vec<Tensor>,
    /// In the order of `stage.buffers()`.
    pub buffers: Vec<Tensor>,
    /// All its tensors, where it is sharded.
    pub placed: Vec<Placed>,
    /// Those of all modules of the rank.
    pub hooks: Rc<ModuleHooks>,
}

/// A stage with its wrapper, as a schedule calls it.
pub(crate) trait WrappedStage {
    /// `forward_maybe_with_nosync`: what it makes of `received`, or of the ids of the call.
    fn forward(&self, call: &ForwardCall, received: Option<&Tensor>) -> Option<Tensor>;

    /// What `backward_maybe_with_nosync` does before the backward pass of a micro-batch, the last one of a step or another.
    fn begin_backward(&self, _is_last: bool) {}

    /// `perform_reduce_grad`, after the last backward pass of a step.
    fn reduce_gradients(&self) {}

    /// Begins to gather a sharded stage ahead of its passes (`UNSHARD`).
    fn gather(&self) {}

    /// What a pass waits for if that was begun.
    fn wait_for_gather(&self) {}

    /// Lets go of what was gathered (`RESHARD`).
    fn reshard(&self) {}

    /// What is clipped, scaled and stepped.
    fn parameters(&self) -> &[Tensor];
}

/// Whether the rank's device is where the process keeps its model: not the further GPUs of `DataParallel`.
pub(crate) fn holds_model(parallel: Parallel) -> bool {
    parallel.strategy != Strategy::DataParallel || parallel.rank == 0
}

/// The job as the wrapper's library runs it: DeepSpeed casts the model to half precision instead of using autocast, and
/// keeps fp32 weights itself.
pub(crate) fn as_run(job: &JobSpec) -> JobSpec {
    let precision = match (job.parallel.strategy, job.precision) {
        (Strategy::DeepSpeed(_), Precision::AmpBf16 | Precision::Bf16Amp) => Precision::Bf16,
        (Strategy::DeepSpeed(_), Precision::AmpFp16 | Precision::Fp16Amp) => Precision::Fp16,
        (_, precision) => precision,
    };
    JobSpec { precision, ..job.clone() }
}

/// Whether the wrapper's library casts every parameter before it comes to the device, adapters too: not where the Trainer has
/// loaded the base in parts (`deepspeed.zero.Init`) before adapters are put on it.
pub(crate) fn casts_all_weights(job: &JobSpec) -> bool {
    match job.parallel.strategy {
        Strategy::DeepSpeed(options) => options.stage < 3 || parts_of(job).is_none(),
        _ => false,
    }
}

/// How each parameter is divided as it is loaded (`deepspeed.zero.Init`): under stage 3 of the Trainer and of TRL's
/// trainers, which are made from it.
pub(crate) fn parts_of(job: &JobSpec) -> Option<Parts> {
    match job.parallel.strategy {
        Strategy::DeepSpeed(DeepSpeed { stage: 3, offload_param, .. })
            if matches!(job.framework, Framework::Trainer | Framework::Trl) =>
        {
            Some(Parts { ranks: job.parallel.world_size, offloaded: offload_param })
        }
        _ => None,
    }
}

/// How the model is loaded where a rank holds but a shard of it.
pub(crate) fn sharding_of(job: &JobSpec) -> Option<Sharding> {
    match job.parallel.strategy {
        Strategy::Fsdp1(fsdp1) => {
            Some(Sharding { param_dtype: fsdp1.param_dtype, buffer_dtype: fsdp1.buffer_dtype, init: fsdp1.init.into() })
        }
        Strategy::Fsdp2(policy)
        | Strategy::PipelineParallel {
            replicas: Some(StageReplicas { wrapper: StageWrapper::Fsdp2(policy), .. }),
            ..
        } => Some(Sharding { param_dtype: policy.param_dtype, buffer_dtype: None, init: policy.init }),
        _ => None,
    }
}

/// Puts the job's wrapper round a loaded model.
pub(crate) fn wrap_model(job: &JobSpec, context: &Rc<Context>, loaded: Loaded) -> Box<dyn Wrapper> {
    if !matches!(job.parallel.strategy, Strategy::None | Strategy::AllReduce) {
        context.phase(PhaseKind::Wrap);
    }
    match job.parallel.strategy {
        Strategy::TensorParallel { .. } if job.parallel.ranks_of_layers().is_some() => {
            Box::new(DividedLayers::new(job, loaded))
        }
        Strategy::None | Strategy::AllReduce | Strategy::TensorParallel { .. } => Box::new(Plain::new(loaded)),
        Strategy::PipelineParallel { stages, schedule, .. } => {
            Box::new(PipelineStage::new(job, loaded, stages, schedule))
        }
        Strategy::DataParallel => Box::new(DataParallel::new(context, loaded, job.parallel)),
        Strategy::Ddp(ddp) => Box::new(DistributedDataParallel::new(context, loaded, ddp)),
        Strategy::Zero1 { ddp, .. } => {
            let wrapper: Box<dyn Wrapper> = match ddp {
                Some(ddp) => Box::new(DistributedDataParallel::new(context, loaded, ddp)),
                None => Box::new(Plain::new(loaded)),
            };
            Box::new(Zero1::new(wrapper, context))
        }
        Strategy::Fsdp1(options) => fsdp1::wrap_fsdp1(&options, job, context, loaded),
        Strategy::Fsdp2(policy) => fsdp2::wrap_fsdp2(&policy, job, context, loaded),
        Strategy::DeepSpeed(options @ DeepSpeed { stage: 3, .. }) => {
            Box::new(ZeroStage3::new(job, context, loaded, options))
        }
        Strategy::DeepSpeed(options) => Box::new(ZeroStage12::new(job, context, loaded, options)),
    }
}

/// Puts round a model that is not trained what TRL prepares it with (trl 1.16, models/utils.py).
pub(crate) fn wrap_frozen(job: &JobSpec, context: &Rc<Context>, loaded: Loaded) -> Box<dyn Wrapper> {
    match job.parallel.strategy {
        Strategy::Fsdp1(options) => fsdp1::wrap_frozen(options, job, context, loaded),
        Strategy::DeepSpeed(options @ DeepSpeed { stage: 3, .. }) => {
            Box::new(ZeroInference::new(job, context, loaded, options))
        }
        _ => Box::new(Plain::new(loaded)),
    }
}

struct Plain {
    model: Rc<dyn Model>,
    parameters: Vec<Tensor>,
}

impl Plain {
    fn new(loaded: Loaded) -> Self {
        Self { model: loaded.model, parameters: loaded.parameters }
    }
}

impl Wrapper for Plain {
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

    fn remembers_passes(&self) -> bool {
        false
    }

    fn divides_optimizer(&self) -> bool {
        false
    }
}
