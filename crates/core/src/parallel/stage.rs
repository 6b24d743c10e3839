//! What is round a stage of a pipeline: nothing, or what spreads it over ranks that train on rows of their own
//! (torch/distributed/pipelining/stage.py, PyTorch 2.11).

use std::rc::Rc;

use crate::building::{ModuleHooks, Placed};
use crate::job::{Ddp, JobSpec, StageWrapper};
use crate::model::family::{ForwardCall, Model};
use crate::tensor::{Context, Tensor};
use crate::trace::PhaseKind;

use super::ddp::DdpHooks;
use super::fsdp2::ShardedStage;

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

/// Puts what the job has round its stages round each of those of a rank.
pub(crate) fn wrap_stages(
    job: &JobSpec,
    context: &Rc<Context>,
    stages: Vec<LoadedStage>,
) -> Vec<Box<dyn WrappedStage>> {
    let replicas = job.parallel.stage_replicas();
    if replicas.is_some() {
        context.phase(PhaseKind::Wrap);
    }
    let wrap = |(number, stage): (usize, LoadedStage)| -> Box<dyn WrappedStage> {
        match replicas.map(|replicas| replicas.wrapper) {
            None => Box::new(PlainStage::new(stage)),
            Some(StageWrapper::Ddp(ddp)) => Box::new(DdpStage::new(context, stage, ddp)),
            Some(StageWrapper::Fsdp2(policy)) => {
                // At most eight are.
                let number = u8::try_from(number % 8).unwrap_or_default();
                Box::new(ShardedStage::new(&policy, job, context, (stage, number)))
            }
        }
    };
    stages.into_iter().enumerate().map(wrap).collect()
}

fn trained(parameters: &[Tensor]) -> Vec<Tensor> {
    parameters.iter().filter(|parameter| parameter.requires_grad()).cloned().collect()
}

/// A stage that one rank has.
struct PlainStage {
    model: Box<dyn Model>,
    parameters: Vec<Tensor>,
}

impl PlainStage {
    fn new(stage: LoadedStage) -> Self {
        Self { model: stage.model, parameters: trained(&stage.parameters) }
    }
}

impl WrappedStage for PlainStage {
    fn forward(&self, call: &ForwardCall, received: Option<&Tensor>) -> Option<Tensor> {
        self.model.run_stage(call, received)
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }
}

/// A stage in `DistributedDataParallel`, all of whose forward passes run under `no_sync()`; the schedule prepares its reducer for the last
/// backward pass of a step.
struct DdpStage {
    model: Box<dyn Model>,
    parameters: Vec<Tensor>,
    hooks: DdpHooks,
}

impl DdpStage {
    fn new(context: &Rc<Context>, stage: LoadedStage, options: Ddp) -> Self {
        let parameters = trained(&stage.parameters);
        let hooks = DdpHooks::new(context, &stage.parameters, stage.buffers, parameters.clone(), options);
        hooks.set_gradient_sync(false);
        Self { model: stage.model, parameters, hooks }
    }
}

impl WrappedStage for DdpStage {
    fn forward(&self, call: &ForwardCall, received: Option<&Tensor>) -> Option<Tensor> {
        self.hooks.pre_forward();
        let output = self.model.run_stage(call, received)?;
        self.hooks.post_forward(vec![output]).pop()
    }

    fn begin_backward(&self, is_last: bool) {
        if is_last {
            self.hooks.reduce_next_backward();
        }
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }
}
