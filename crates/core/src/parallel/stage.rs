//! What is round a stage of a pipeline: nothing, or what spreads it over ranks that train on rows of their own
//! (torch/distributed/pipelining/stage.py, PyTorch 2.11).

use std::rc::Rc;

use crate::job::{Ddp, JobSpec, StageWrapper};
use crate::model::family::{ForwardCall, Model};
use crate::tensor::{Context, Tensor};
use crate::trace::PhaseKind;

use super::ddp::DdpHooks;
use super::fsdp2::ShardedStage;
use super::{LoadedStage, WrappedStage};

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
