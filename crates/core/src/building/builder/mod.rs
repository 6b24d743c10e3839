//! Builds a model on the device in the order `model.to("cuda")` moves it: children first, then own parameters, then
//! own buffers, in the order they are registered.

mod adapters;
mod checkpoint;
mod given;
mod head;
mod kbit;
mod over_ranks;
mod sharding;
mod stage;

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;

use thiserror::Error;

use crate::dtype::DType;
use crate::job::{FieldError, JobError, LoraSpec};
use crate::tensor::{Context, Shape, Tensor};
use crate::trace::{AllocationId, Category};

use super::init::Init;
use super::mode::Mode;
use super::module::{Module, ModuleHooks, Part};
use super::quantization::Quantization;

use given::ReplicaTensors;
pub(crate) use given::SharedParameters;
use head::HeadPlace;
use kbit::Load;
pub(crate) use over_ranks::Parts;
pub(crate) use sharding::{Placed, PlacedKind, Sharding};
pub(crate) use stage::Ends;

/// Why a model cannot be built from its config.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BuildError {
    /// A field is missing, of the wrong kind, or contradicts another.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The `model_type` has no family here.
    #[error("model type `{model_type}` is not known; known are {known}")]
    UnknownModelType {
        /// What was asked for.
        model_type: String,
        /// All that would do.
        known: String,
    },
    /// The job asks for what PyTorch or its libraries refuse.
    #[error(transparent)]
    Job(#[from] JobError),
}

/// What has been built so far.
#[derive(Default)]
struct Built {
    placed: Vec<Placed>,
    parameters: Vec<Tensor>,
    created: Vec<Tensor>,
    buffers: Vec<Tensor>,
    parameter_count: u64,
    adapters: Vec<Tensor>,
    adapters_are_last: bool,
    /// Weights of modules that are trained in full beside adapters.
    copies: Vec<Tensor>,
    /// Modules that have such a copy.
    saved: Vec<String>,
    /// The weight that is cast to fp32 once the model is there.
    cast_head: Option<(AllocationId, Shape)>,
    /// Where in the trace each tensor of a quantized model begins to come to the device.
    loads: Vec<Load>,
    /// Embeddings and head that are cast back behind peft's preparation.
    heads: Vec<Tensor>,
    /// The table that bitsandbytes keeps for the process, and where in the trace it was made.
    table: Option<(Tensor, usize)>,
    /// Modules that LoRA targets by name, and those of them that have an adapter.
    targeted: Vec<String>,
    adapted: Vec<String>,
    /// Modules whose adapters are not simulated, and the names of linear layers by which they would get them.
    adapted_by_name: Vec<(String, Vec<String>)>,
    /// A module whose adapters are asked for and not simulated.
    unadapted: Option<String>,
    /// A linear layer that peft refuses to adapt.
    refused: Option<String>,
    /// Parameters of layers of which each rank has a part.
    divided: Vec<Tensor>,
    /// This rank's parts of parameters, where the model is loaded in parts.
    parts: Vec<(Tensor, Tensor)>,
    /// Parameters by their names in the checkpoint, where those decide when they come to the device.
    named: Vec<(String, AllocationId)>,
}

/// Where in the module tree the next parameter goes, and what kind of model it is.
#[derive(Clone)]
pub(crate) struct Builder {
    path: String,
    /// The module in the trace, once it is registered there.
    registered: Cell<Option<u32>>,
    /// Shared with the builders of other modules, of which a model has a thousand.
    settings: Rc<BuildSettings>,
}

/// What most modules of a model have in common.
#[derive(Clone)]
pub(crate) struct BuildSettings {
    context: Rc<Context>,
    dtype: DType,
    materialized: bool,
    loads_by_name: bool,
    lora: Option<Rc<LoraSpec>>,
    /// A module that peft keeps beside the copy that it trains in full.
    is_replaced: bool,
    head: HeadPlace,
    /// Which ends of the model are here, where a pipeline divides its layers.
    ends: Ends,
    sharding: Option<Sharding>,
    /// Whether every rank holds all of the adapters of a sharded model.
    replicates_adapters: bool,
    quantization: Option<Quantization>,
    quantizes_experts: bool,
    /// Whether peft prepares the quantized model for training.
    is_prepared: bool,
    /// What embeddings and head are cast to behind peft's preparation, where somebody casts them.
    heads_dtype: Option<DType>,
    /// What adapters are cast to once the model is there, where that is not fp32.
    adapter_dtype: Option<DType>,
    /// How each parameter is divided over ranks as it is made.
    parts: Option<Parts>,
    /// How many ranks have a part of each layer that the model's plan divides.
    ranks_of_layers: Option<u64>,
    /// Whether it is an embedding that a head is tied to.
    is_tied: bool,
    /// Whether the model is made in fp32, on the host, and its parameters alone are cast there.
    made_in_fp32: bool,
    unit: Option<u32>,
    /// Whether nothing here is trained, nor gets adapters.
    is_frozen: bool,
    mode: Rc<Mode>,
    hooks: Rc<ModuleHooks>,
    /// What a replica is made of, in place of new tensors.
    replica: Option<Rc<ReplicaTensors>>,
    /// Parameters that this module has in common with others.
    shared: Option<SharedParameters>,
    built: Rc<RefCell<Built>>,
}

impl Deref for Builder {
    type Target = BuildSettings;

    fn deref(&self) -> &BuildSettings {
        &self.settings
    }
}

impl Builder {
    pub(crate) fn new(context: &Rc<Context>, dtype: DType, lora: Option<LoraSpec>, mode: Mode) -> Self {
        let settings = BuildSettings {
            context: Rc::clone(context),
            dtype,
            materialized: false,
            loads_by_name: false,
            lora: lora.map(Rc::new),
            is_replaced: false,
            head: HeadPlace::Built,
            ends: Ends { front: true, back: true },
            sharding: None,
            replicates_adapters: false,
            quantization: None,
            quantizes_experts: false,
            is_prepared: false,
            heads_dtype: None,
            adapter_dtype: None,
            parts: None,
            ranks_of_layers: None,
            is_tied: false,
            made_in_fp32: false,
            unit: None,
            is_frozen: false,
            mode: Rc::new(mode),
            hooks: Rc::default(),
            replica: None,
            shared: None,
            built: Rc::default(),
        };
        Self { path: String::new(), registered: Cell::new(None), settings: Rc::new(settings) }
    }

    /// The same place with other settings.
    fn set(mut self, set: impl FnOnce(&mut BuildSettings)) -> Self {
        set(Rc::make_mut(&mut self.settings));
        self
    }

    /// A builder of the same model over given tensors, in the order of [`Self::created_parameters`] and of the buffers.
    pub(crate) fn of_replica(&self, parameters: Vec<Tensor>, buffers: Vec<Tensor>) -> Self {
        let replica =
            ReplicaTensors { parameters: RefCell::new(parameters.into()), buffers: RefCell::new(buffers.into()) };
        self.clone().set(|settings| {
            settings.replica = Some(Rc::new(replica));
            settings.built = Rc::default();
        })
    }

    /// The process that it builds in.
    pub(crate) fn context(&self) -> &Rc<Context> {
        &self.context
    }

    /// Buffers get their memory from [`Self::materialize_buffers`], after all parameters.
    pub(crate) fn materialized(self, materialized: bool) -> Self {
        self.set(|settings| settings.materialized = materialized)
    }

    /// The same place, whose parameters are those of the module that was built so before, its adapters its own.
    pub(crate) fn sharing(&self, shared: &SharedParameters) -> Self {
        shared.0.1.set(0);
        self.clone().set(|settings| settings.shared = Some(shared.clone()))
    }

    /// The same, where weights begin with this deviation (`initializer_range`).
    pub(crate) fn deviating(&self, _deviation: f64) -> Self {
        self.clone()
    }

    /// The same place, whose parameters have the names of another's.
    pub(crate) fn called_as(&self, _other: &Self) -> Self {
        self.clone()
    }

    /// Says that nobody here knows the numbers of something that this key asks for, which takes no other memory.
    pub(crate) fn lack_numbers(&self, _key: &str, _problem: impl FnOnce() -> String) {}

    /// The same place, where nothing is trained if `is_frozen`.
    pub(crate) fn frozen(&self, is_frozen: bool) -> Self {
        self.clone().set(|settings| settings.is_frozen = is_frozen)
    }

    /// The builder of a child module.
    pub(crate) fn at(&self, name: &str) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { [&self.path, ".", name].concat() };
        Self { path, registered: Cell::new(None), settings: Rc::clone(&self.settings) }
    }

    /// The builder of an element of a list of layers.
    pub(crate) fn element(&self, index: u64) -> Self {
        let element = self.at(&index.to_string());
        let unit = Some(element.module_id());
        element.set(|settings| settings.unit = unit)
    }

    /// The dtype that the model is loaded in.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The switches of the model that is built.
    pub(crate) fn mode(&self) -> Rc<Mode> {
        Rc::clone(&self.mode)
    }

    /// The hooks of the model's modules.
    pub(crate) fn module_hooks(&self) -> Rc<ModuleHooks> {
        Rc::clone(&self.hooks)
    }

    /// This module as a place in the trace.
    pub(crate) fn module(&self) -> Module {
        if self.lora.as_ref().is_some_and(|lora| self.is_target(lora) && !self.is_replaced && !self.is_left_out()) {
            self.built.borrow_mut().targeted.push(self.path.clone());
        }
        Module::new(&self.context, self.module_id(), &self.hooks).over_ranks(self.split())
    }

    fn module_id(&self) -> u32 {
        let path = if self.path.is_empty() { "<model>" } else { &self.path };
        let id = self.registered.get().unwrap_or_else(|| self.context.register_module(path.to_owned()));
        self.registered.set(Some(id));
        id
    }

    /// A weight in the model's dtype; frozen when adapters are trained instead. It is called what this module is called, and `name`.
    pub(crate) fn parameter(&self, name: &str, sizes: &[u64], _init: Init) -> Tensor {
        match &self.shared {
            Some(shared) => shared.next_or_make(|| self.new_parameter(name, sizes)),
            None => self.new_parameter(name, sizes),
        }
    }

    fn new_parameter(&self, name: &str, sizes: &[u64]) -> Tensor {
        let sizes: &[u64] = &self.own_sizes(sizes);
        if self.is_left_out() {
            return Tensor::nowhere(&self.context, Shape::new(sizes), self.dtype);
        }
        if let Some(tensor) = self.replicated_parameter() {
            return tensor;
        }
        self.begin_load(name);
        match self.sharding {
            Some(sharding) => {
                self.sharded_parameter((Part::Itself, sizes), self.dtype, sharding, |tensor| self.count(tensor))
            }
            None => self.keep_part(self.count(self.note_name(name, self.load_weight(sizes)))),
        }
    }

    fn count(&self, tensor: Tensor) -> Tensor {
        self.built.borrow_mut().parameter_count += tensor.numel();
        self.list(if self.lora.is_some() || self.is_frozen { tensor } else { tensor.into_parameter() })
    }

    /// Where `model.parameters()` lists the next parameter.
    pub(crate) fn next_slot(&self) -> usize {
        self.built.borrow().parameters.len()
    }

    /// A weight that `model.parameters()` lists at `slot`, before others that are moved to the device first.
    pub(crate) fn parameter_listed_at(&self, slot: usize, name: &str, sizes: &[u64], init: Init) -> Tensor {
        let parameter = self.parameter(name, sizes, init);
        if let Some(tail) = self.built.borrow_mut().parameters.get_mut(slot..) {
            tail.rotate_right(1);
        }
        parameter
    }

    fn replicated_parameter(&self) -> Option<Tensor> {
        self.replica.as_ref()?.parameters.borrow_mut().pop_front()
    }

    fn list(&self, parameter: Tensor) -> Tensor {
        self.note_divided(&parameter);
        let mut built = self.built.borrow_mut();
        built.parameters.push(parameter.clone());
        built.created.push(parameter.clone());
        parameter
    }

    /// Another module's parameter, registered here as well.
    pub(crate) fn tie(&self, parameter: &Tensor) {
        if self.sharding.is_some() && !self.is_left_out() {
            self.note(parameter, PlacedKind::Tied);
        }
    }

    /// A buffer that checkpoints have (`persistent=True`).
    pub(crate) fn saved_buffer(&self, _name: &str, sizes: &[u64], dtype: DType, _init: Init) -> Tensor {
        self.buffer(sizes, dtype, Vec::new)
    }

    /// A buffer of its own dtype, which no checkpoint has.
    pub(crate) fn buffer(&self, sizes: &[u64], dtype: DType, _contents: impl FnOnce() -> Vec<f64>) -> Tensor {
        if let Some(buffer) = self.replica.as_ref().and_then(|replica| replica.buffers.borrow_mut().pop_front()) {
            return buffer;
        }
        if let Some(sharding) = self.sharding {
            return self.sharded_buffer(sizes, dtype, sharding);
        }
        self.begin_buffer();
        let buffer = if self.materialized {
            Tensor::nowhere(&self.context, Shape::new(sizes), dtype)
        } else {
            self.load(sizes, dtype, Category::Buffer)
        };
        self.built.borrow_mut().buffers.push(buffer.clone());
        buffer
    }

    /// A tensor of this module that comes to the device.
    pub(super) fn load(&self, sizes: &[u64], dtype: DType, category: Category) -> Tensor {
        let _module = self.context.enter_module(self.module_id());
        let _category = self.context.enter_category(category);
        Tensor::empty(&self.context, "_to_copy.default", Shape::new(sizes), dtype)
    }

    /// All parameters, frozen ones too, in the order `model.parameters()` lists them.
    pub(crate) fn parameters(&self) -> Vec<Tensor> {
        self.built.borrow().parameters.clone()
    }

    /// All parameters in the order they were made, which is not always that of `model.parameters()`.
    pub(crate) fn created_parameters(&self) -> Vec<Tensor> {
        self.built.borrow().created.clone()
    }

    /// The trained parameters, in the same order.
    pub(crate) fn trainable(&self) -> Vec<Tensor> {
        self.built.borrow().parameters.iter().filter(|parameter| parameter.requires_grad()).cloned().collect()
    }

    /// All buffers, in the order `model.buffers()` lists them; they are handed over, as models may replace theirs.
    pub(crate) fn take_buffers(&self) -> Vec<Tensor> {
        std::mem::take(&mut self.built.borrow_mut().buffers)
    }

    /// Number of parameters, tied ones once.
    pub(crate) fn parameter_count(&self) -> u64 {
        self.built.borrow().parameter_count
    }
}
