//! A model that is not trained in an engine of its own (`DeepSpeedZeRoOffload`, deepspeed/runtime/zero/parameter_offload.py): its parts
//! are gathered round the modules that have them, and nothing else is made.

use std::rc::Rc;

use crate::building::ModuleHooks;
use crate::job::{DeepSpeed, JobSpec};
use crate::model::family::{ForwardCall, Model, ModelOutput};
use crate::model::nn::KvCache;
use crate::parallel::{Loaded, Wrapper};
use crate::tensor::{Context, Tensor};

use super::coordinator::{Coordinator, Limits};
use super::partitioning::partition_params;
use super::{Modules, run_fused};

/// `allgather_stream` of this engine; the trained one has two before it.
const ALL_GATHER_STREAM: u8 = 3;

/// A model in an engine without an optimizer.
pub(in crate::parallel) struct ZeroInference {
    model: Rc<dyn Model>,
    hooks: Rc<ModuleHooks>,
    coordinator: Rc<Coordinator>,
    modules: Rc<Modules>,
    parameters: Vec<Tensor>,
}

/// The hooks hold the model's tensors.
impl Drop for ZeroInference {
    fn drop(&mut self) {
        self.hooks.remove_all();
    }
}

impl ZeroInference {
    pub(in crate::parallel) fn new(job: &JobSpec, context: &Rc<Context>, loaded: Loaded, options: DeepSpeed) -> Self {
        let Loaded { model, parameters, all_parameters, builder, .. } = loaded;
        let (params, modules) = partition_params(job, &all_parameters, &builder, options);
        let limits = Limits::new(options, ALL_GATHER_STREAM);
        let coordinator = Rc::new(Coordinator::new(context, params.clone(), limits));
        let hooks = builder.module_hooks();
        let modules = Rc::new(Modules::new(&coordinator, &params, &modules));
        hooks.register_for_all(Rc::<Modules>::clone(&modules));
        Self { model, hooks, coordinator, modules, parameters }
    }
}

impl Wrapper for ZeroInference {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        self.coordinator.reset_step();
        self.model.forward(call)
    }

    fn around(&self, forward: &mut dyn FnMut(&dyn Model) -> Vec<Tensor>) -> Option<Vec<Tensor>> {
        self.coordinator.reset_step();
        Some(forward(self.model.as_ref()))
    }

    fn around_fused(&self, forward: &mut dyn FnMut(&dyn Model) -> Vec<Tensor>) -> Option<Vec<Tensor>> {
        self.coordinator.reset_step();
        Some(run_fused(&self.modules, self.model.as_ref(), forward))
    }

    fn new_cache(&self) -> Rc<KvCache> {
        self.model.new_cache()
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }
}
