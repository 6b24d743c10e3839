//! DeepSpeed's ZeRO stage 3 (deepspeed/runtime/zero/stage3.py, 0.19.8): a rank holds a part of each parameter, gathers it round
//! the module that has it, and steps fp32 weights of its parts.
//!
//! `partitioning` divides a loaded model, `param` is one parameter, `coordinator` when it comes and goes by the `record` of a pass, `gradients` what hooks do in backward,
//! `step` the optimizer, `offload` what of them lies on the host.

mod coordinator;
mod gradients;
mod inference;
mod offload;
mod param;
mod partitioning;
mod record;
mod step;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use crate::building::{EveryModule, ModuleHooks, ModuleKey, Part};
use crate::dtype::DType;
use crate::job::{DeepSpeed, JobSpec};
use crate::model::family::{ForwardCall, Model, ModelOutput};
use crate::model::nn::KvCache;
use crate::op::full;
use crate::optimizer::{self, Optimizer};
use crate::tensor::{Context, Tensor};

use super::super::{Loaded, Wrapper};
use super::{is_of_trainer, scale_loss};
use coordinator::{Coordinator, Limits, Own};
use gradients::{Gradients, Setup};
pub(in crate::parallel) use inference::ZeroInference;
use param::{Param, Status};
use partitioning::{Partitioning, partition_params};
pub(super) use step::combine_norms;
use step::{Group, PartOptimizer};

/// `allgather_stream`, where communication overlaps.
const ALL_GATHER_STREAM: u8 = 1;
/// The model with its head over its base, where a program runs the base and reads the head's weight.
const FUSED_MODEL: ModuleKey = (u32::MAX - 2, Part::Itself);
/// `PeftModel` and `LoraModel` over the language model, which none of its own modules stands for.
const PEFT_MODELS: [ModuleKey; 2] = [(u32::MAX, Part::Itself), (u32::MAX - 1, Part::Itself)];

/// A model in `DeepSpeedEngine`.
pub(in crate::parallel) struct ZeroStage3 {
    model: Rc<dyn Model>,
    hooks: Rc<ModuleHooks>,
    parameters: Vec<Tensor>,
    params: Vec<Rc<Param>>,
    gradients: Rc<Gradients>,
    coordinator: Rc<Coordinator>,
    modules: Rc<Modules>,
    /// Groups that are stepped at once, with their fp32 weights.
    masters: RefCell<Vec<(Vec<usize>, Tensor)>>,
    /// Whether peft's model stands over the language model.
    is_adapted: bool,
    /// `offload_param`: parts of weights lie on the host.
    has_params_on_host: bool,
    /// `lp_param_buffer`, or its like on the host, and `inf_or_nan_tracker`
    _held: Vec<Tensor>,
}

/// The hooks hold the model's tensors.
impl Drop for ZeroStage3 {
    fn drop(&mut self) {
        self.hooks.remove_all();
    }
}

impl ZeroStage3 {
    pub(in crate::parallel) fn new(job: &JobSpec, context: &Rc<Context>, loaded: Loaded, options: DeepSpeed) -> Self {
        let Loaded { model, parameters, all_parameters, builder, .. } = loaded;
        let world_size = job.parallel.world_size;
        let (params, modules) = partition_params(job, &all_parameters, &builder, options);
        let mut trained: Vec<Rc<Param>> = params.iter().filter(|param| param.tensor.requires_grad()).cloned().collect();
        let of_trainer = is_of_trainer(job);
        trained.sort_by_key(|param| of_trainer && !optimizer::decays(&param.tensor));
        let communicated = job.precision.weight_dtype();
        // Adapters stay in fp32 where the base was partitioned before they came.
        let dtype = trained.first().map_or(communicated, |param| param.tensor.dtype());
        let parts = Partitioning { context, options, dtype, params, trained, of_trainer };
        let tracker = || full(context, "zeros.default", &[1], DType::Bool);
        let mut held: Vec<Tensor> = options.offload_optimizer.is_none().then(tracker).into_iter().collect();
        held.extend(parts.hold_parts());
        let masters = parts.masters(parts.sub_groups());
        let coordinator =
            Rc::new(Coordinator::new(context, parts.params.clone(), Limits::new(options, ALL_GATHER_STREAM)));
        let setup = Setup {
            trained: parts.trained.clone(),
            dtype: communicated,
            world_size,
            rank: job.parallel.rank,
            bucket_size: options.reduce_bucket_size,
            overlaps: options.overlap_comm,
            offload: options.offload_optimizer,
        };
        let gradients = Rc::new(Gradients::new(context, setup, &coordinator));
        hook_gradients(&gradients);
        let hooks = builder.module_hooks();
        let modules = Rc::new(Modules::new(&coordinator, &parts.params, &modules));
        hooks.register_for_all(Rc::<Modules>::clone(&modules));
        let weak = Rc::downgrade(&modules);
        context.hook_outputs(move |module| {
            if let Some(modules) = weak.upgrade() {
                modules.pre_backward((module, Part::Itself));
            }
        });
        context.watch_nodes();
        context.replace_linear();
        Self {
            model,
            hooks,
            parameters,
            params: parts.params,
            gradients,
            coordinator,
            modules,
            masters: RefCell::new(masters),
            is_adapted: job.lora.is_some(),
            has_params_on_host: options.offload_param.is_some(),
            _held: held,
        }
    }
}

impl ZeroStage3 {
    /// A forward pass through the engine, with the hooks of the modules that peft has put round the model.
    fn run_engine<T>(&self, forward: impl FnOnce() -> T) -> T {
        self.coordinator.reset_step();
        if !self.is_adapted {
            return forward();
        }
        PEFT_MODELS.iter().for_each(|above| self.modules.pre_forward(*above, Some(&[])));
        let output = forward();
        for above in PEFT_MODELS.into_iter().rev() {
            self.modules.post_forward(above);
            let modules = Rc::clone(&self.modules);
            self.gradients.context.hook_latest_node(0, move || modules.pre_backward(above));
        }
        output
    }
}

/// `create_reduce_and_remove_grad_hooks`: each trained parameter is gathered once for it.
fn hook_gradients(gradients: &Rc<Gradients>) {
    for (at, param) in gradients.trained.iter().enumerate() {
        param.gather_alone();
        param.release();
        let gradients: Weak<Gradients> = Rc::downgrade(gradients);
        param.tensor.register_post_accumulate_grad_hook(move || {
            if let Some(gradients) = gradients.upgrade() {
                gradients.take_gradient(at);
            }
        });
    }
}

/// The hooks round every module (deepspeed/runtime/zero/parameter_offload.py).
struct Modules {
    coordinator: Rc<Coordinator>,
    params: Vec<Rc<Param>>,
    /// By the place in the trace that made them.
    own: BTreeMap<u32, Own>,
}

impl Modules {
    fn new(coordinator: &Rc<Coordinator>, params: &[Rc<Param>], modules: &[u32]) -> Self {
        let mut own: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (at, module) in modules.iter().enumerate() {
            own.entry(*module).or_default().push(at);
        }
        let own = own.into_iter().map(|(module, own)| (module, own.into())).collect();
        Self { coordinator: Rc::clone(coordinator), params: params.to_vec(), own }
    }

    fn places_of(&self, own: &[&Tensor]) -> Own {
        let place = |tensor: &&Tensor| self.params.iter().position(|param| param.tensor.is_same(tensor));
        let mut places: Vec<usize> = own.iter().filter_map(place).collect();
        places.sort_unstable();
        places.into()
    }
}

/// `_fused_forward` in place of the model's own (trl 1.16, trainer/utils.py): the head's weight belongs to the model then, from its
/// beginning to its end (`register_external_parameter`).
fn run_fused(
    modules: &Rc<Modules>,
    model: &dyn Model,
    forward: &mut dyn FnMut(&dyn Model) -> Vec<Tensor>,
) -> Vec<Tensor> {
    let head = model.output_embeddings();
    modules.pre_forward(FUSED_MODEL, Some(&[head.weight()]));
    let outputs = forward(model);
    modules.post_forward(FUSED_MODEL);
    let has_begun = Rc::new(Cell::new(false));
    for output in outputs.iter().filter(|output| output.requires_grad()) {
        let (modules, has_begun) = (Rc::clone(modules), Rc::clone(&has_begun));
        output.register_hook(move || {
            if !has_begun.replace(true) {
                modules.pre_backward(FUSED_MODEL);
            }
        });
    }
    outputs
}

impl EveryModule for Modules {
    fn pre_forward(&self, module: ModuleKey, own: Option<&[&Tensor]>) {
        let known = self.coordinator.known_own(module);
        let own = known.unwrap_or_else(|| match own {
            Some(own) => self.places_of(own),
            None => self.own.get(&module.0).cloned().unwrap_or_default(),
        });
        self.coordinator.begin_module(module, &own);
        self.coordinator.fetch(module, true);
    }

    fn post_forward(&self, module: ModuleKey) {
        self.coordinator.release(module, true);
    }

    /// `ZeROOrderedDict.__getitem__`
    fn read(&self, module: ModuleKey, parameter: &Tensor) {
        let at = self.params.iter().position(|param| param.tensor.is_same(parameter));
        let Some((at, param)) = at.and_then(|at| Some((at, self.params.get(at)?))) else { return };
        if param.is(Status::NotAvailable) && !parameter.context().runs_backward() {
            self.coordinator.add_own(module, at);
            param.gather_alone();
        }
    }

    fn pre_backward(&self, module: ModuleKey) {
        self.coordinator.begin_backward(module);
        self.coordinator.fetch(module, false);
    }

    fn post_backward(&self, module: ModuleKey) {
        self.coordinator.release(module, false);
    }
}

impl Wrapper for ZeroStage3 {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        self.run_engine(|| self.model.forward(call))
    }

    fn around(&self, forward: &mut dyn FnMut(&dyn Model) -> Vec<Tensor>) -> Option<Vec<Tensor>> {
        Some(self.run_engine(|| forward(self.model.as_ref())))
    }

    fn around_fused(&self, forward: &mut dyn FnMut(&dyn Model) -> Vec<Tensor>) -> Option<Vec<Tensor>> {
        Some(self.run_engine(|| run_fused(&self.modules, self.model.as_ref(), forward)))
    }

    fn new_cache(&self) -> Rc<KvCache> {
        self.model.new_cache()
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn divides_loss(&self) -> bool {
        false
    }

    fn engine_loss(&self, loss: &Tensor, divides: bool) -> Option<[Tensor; 2]> {
        Some(scale_loss(loss, divides))
    }

    fn end_backward(&self) {
        self.gradients.end_backward();
    }

    fn set_gradient_sync(&self, sync: bool) {
        if let Some(offload) = &self.gradients.offload {
            offload.is_boundary.set(sync);
        }
    }

    /// The step clips.
    fn clip_grad_norm(&self) {}

    fn optimizer(&self, job: &JobSpec) -> Box<dyn Optimizer> {
        let group = |(members, master): (Vec<usize>, Tensor)| {
            let optimizer = optimizer::build(job, std::slice::from_ref(&master));
            Group { members, master, optimizer }
        };
        Box::new(PartOptimizer {
            groups: self.masters.take().into_iter().map(group).collect(),
            gradients: Rc::clone(&self.gradients),
            params: self.params.clone(),
            clips: job.clip_grad_norm.is_some(),
            checks_overflow: self.parameters.first().is_some_and(|trained| trained.dtype() == DType::Float16),
            has_params_on_host: self.has_params_on_host,
            norm: None,
        })
    }
}
