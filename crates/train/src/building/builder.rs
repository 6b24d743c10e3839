//! Builds a model in the order `model.to("cuda")` moves it: memory for each weight now, numbers once the model is there.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use thiserror::Error;

use super::init::Init;
use super::mode::Mode;
use super::module::{Module, Part};
use crate::dtype::DType;
use crate::job::{FieldError, LoraSpec};
use crate::op::empty;
use crate::tensor::{Context, Tensor};

/// Why a model cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A field of the config is missing, of the wrong kind, or asks for what is not computed here.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// What the job asks for is not trained here.
    #[error("{problem}\nhint: {hint}")]
    Refused {
        /// What is wrong, in words.
        problem: String,
        /// The way out.
        hint: String,
    },
}

/// A weight that has memory, and how it begins where nobody has its numbers.
pub(crate) struct NewParameter {
    pub name: String,
    pub tensor: Tensor,
    pub init: Init,
    pub deviation: f64,
    pub is_adapter: bool,
    pub is_trained: bool,
}

/// What has been built so far.
#[derive(Default)]
struct Built {
    /// In the order of `model.parameters()`.
    parameters: Vec<NewParameter>,
    /// In the order of `model.buffers()`.
    buffers: Vec<Tensor>,
    /// Modules that LoRA targets by name, and those that have an adapter.
    targeted: Vec<String>,
    adapted: Vec<String>,
    /// A module whose adapters are asked for and not trained.
    unadapted: Option<String>,
    /// The first thing whose numbers nobody here knows.
    lacking: Option<FieldError>,
}

/// Where in the module tree the next parameter goes, and what kind of model it is.
#[derive(Clone)]
pub(crate) struct Builder {
    context: Rc<Context>,
    path: String,
    registered: Cell<Option<u32>>,
    dtype: DType,
    deviation: f64,
    mode: Rc<Mode>,
    lora: Option<Rc<LoraSpec>>,
    built: Rc<RefCell<Built>>,
}

/// Parameters that modules of one form have in common.
#[derive(Default)]
pub(crate) struct SharedParameters(());

impl Builder {
    pub(crate) fn new(context: &Rc<Context>, dtype: DType, lora: Option<LoraSpec>, checkpointing: bool) -> Self {
        Self {
            context: Rc::clone(context),
            path: String::new(),
            registered: Cell::new(None),
            dtype,
            deviation: 0.02,
            mode: Rc::new(Mode::new(true, checkpointing)),
            lora: lora.map(Rc::new),
            built: Rc::default(),
        }
    }

    pub(crate) fn context(&self) -> &Rc<Context> {
        &self.context
    }

    /// PyTorch's default dtype while the model is made.
    pub(crate) fn default_dtype(&self) -> DType {
        self.dtype
    }

    /// The dtype that the model is loaded in.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The switches of the model that is built.
    pub(crate) fn mode(&self) -> Rc<Mode> {
        Rc::clone(&self.mode)
    }

    fn name(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The builder of a child module.
    pub(crate) fn at(&self, name: &str) -> Self {
        Self { path: self.name(name), registered: Cell::new(None), ..self.clone() }
    }

    /// No layer is quantized here.
    pub(crate) fn whole_in_gptq(self) -> Self {
        self
    }

    /// The builder of the language-model head.
    pub(crate) fn of_head(&self) -> Self {
        self.clone()
    }

    /// The builder of what stands before the layers.
    pub(crate) fn at_front(&self) -> Self {
        self.clone()
    }

    /// The builder of the head behind the layers.
    pub(crate) fn at_back(&self) -> Self {
        self.clone()
    }

    /// What follows the layers is here: no model is divided.
    pub(crate) const fn has_back(&self) -> bool {
        true
    }

    /// The builder of an element of a list of layers.
    pub(crate) fn element(&self, index: u64) -> Self {
        self.at(&index.to_string())
    }

    /// The same, where weights begin with this deviation (`initializer_range`).
    pub(crate) fn deviating(&self, deviation: f64) -> Self {
        Self { deviation, ..self.clone() }
    }

    /// The same place: what has its weights in common with others has layers whose numbers nobody computes here.
    pub(crate) fn sharing(&self, _shared: &SharedParameters) -> Self {
        self.clone()
    }

    /// The same place, whose parameters have the names of another's.
    pub(crate) fn called_as(&self, other: &Self) -> Self {
        Self { path: other.path.clone(), ..self.clone() }
    }

    /// Says that nobody here knows the numbers of something that this key asks for.
    pub(crate) fn lack_numbers(&self, key: &str, problem: impl FnOnce() -> String) {
        self.built.borrow_mut().lacking.get_or_insert_with(|| FieldError::new(key, problem()));
    }

    /// This module, for the errors that name it.
    pub(crate) fn module(&self) -> Module {
        if self.lora.as_ref().is_some_and(|lora| self.is_target(lora)) {
            self.built.borrow_mut().targeted.push(self.path.clone());
        }
        let id = self.registered.get().unwrap_or_else(|| self.context.register_module(self.path.clone()));
        self.registered.set(Some(id));
        Module::new(&self.context, id)
    }

    /// The same of an `nn.Linear`, which core notes for optimizers that look for them.
    pub(crate) fn linear_module(&self) -> Module {
        self.module()
    }

    /// The same place, an embedding that a head may be tied to.
    pub(crate) fn tied_to_head(&self, _is_tied: bool) -> Self {
        self.clone()
    }

    /// The same of an `nn.Embedding`.
    pub(crate) fn embedding_module(&self) -> Module {
        self.module()
    }

    /// A weight in the model's dtype; frozen when adapters are trained instead.
    pub(crate) fn parameter(&self, name: &str, sizes: &[u64], init: Init) -> Tensor {
        let tensor = empty(&self.context, sizes, self.dtype);
        let is_trained = self.lora.is_none();
        self.list(name, if is_trained { tensor.into_parameter() } else { tensor }, init, false)
    }

    fn list(&self, name: &str, tensor: Tensor, init: Init, is_adapter: bool) -> Tensor {
        let is_trained = tensor.inner().requires_grad();
        let (name, deviation) = (self.name(name), self.deviation);
        let new = NewParameter { name, tensor: tensor.clone(), init, deviation, is_adapter, is_trained };
        self.built.borrow_mut().parameters.push(new);
        tensor
    }

    /// The head's weight, or the embedding's that is tied to it.
    pub(crate) fn head_parameter(&self, name: &str, sizes: &[u64], init: Init) -> Tensor {
        self.parameter(name, sizes, init)
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

    /// Another module's parameter, registered here as well: it is stored under its first name.
    #[expect(clippy::unused_self, reason = "the simulation notes it")]
    pub(crate) fn tie(&self, _parameter: &Tensor) {}

    /// A buffer of its own dtype, which no checkpoint has.
    pub(crate) fn buffer(&self, sizes: &[u64], dtype: DType, contents: impl FnOnce() -> Vec<f64>) -> Tensor {
        let buffer = Tensor::of_numbers(&self.context, &contents(), sizes, dtype);
        self.built.borrow_mut().buffers.push(buffer.clone());
        buffer
    }

    /// A buffer that checkpoints have (`persistent=True`).
    pub(crate) fn saved_buffer(&self, name: &str, sizes: &[u64], dtype: DType, init: Init) -> Tensor {
        let buffer = self.list(name, empty(&self.context, sizes, dtype), init, false);
        self.built.borrow_mut().buffers.push(buffer.clone());
        buffer
    }

    /// All buffers, which the builder has no more.
    pub(crate) fn take_buffers(&self) -> Vec<Tensor> {
        std::mem::take(&mut self.built.borrow_mut().buffers)
    }

    /// A module that peft trains in full beside adapters.
    pub(crate) fn saved<T>(&self, build: impl Fn(&Self) -> T) -> T {
        build(self)
    }

    /// What `modules_to_save` names, of which nothing is trained here.
    #[expect(clippy::unused_self, reason = "the simulation has copies")]
    pub(crate) fn saved_if_named<T>(
        &self,
        _original: impl Fn(&Self) -> T,
        _copy: impl Fn(&Self) -> T,
    ) -> Option<(T, T)> {
        None
    }

    /// The adapter of this linear layer, if LoRA targets it.
    pub(crate) fn adapter(&self) -> Option<Rc<LoraSpec>> {
        let lora = self.lora.as_ref()?;
        (lora.is_all_linear() || self.is_target(lora)).then(|| self.adapt(lora))
    }

    /// The adapter of the output head: `all-linear` leaves it out.
    pub(crate) fn head_adapter(&self) -> Option<Rc<LoraSpec>> {
        let lora = self.lora.as_ref()?;
        self.is_target(lora).then(|| self.adapt(lora))
    }

    /// Notes that peft makes adapters for these names, and for `all-linear`, that are not trained: those on parameters of experts.
    pub(crate) fn lack_adapters(&self, names: &[&str]) {
        let Some(lora) = &self.lora else { return };
        let names_one =
            |target: &String| names.iter().any(|name| target == name || target.ends_with(&format!(".{name}")));
        if lora.is_all_linear() || lora.targets.iter().any(names_one) {
            self.built.borrow_mut().unadapted.get_or_insert_with(|| self.path.clone());
        }
    }

    /// Notes that peft refuses to adapt this linear layer.
    pub(crate) fn refuse_adapter(&self) {
        if self.lora.as_ref().is_some_and(|lora| lora.is_all_linear() || self.is_target(lora)) {
            self.built.borrow_mut().unadapted.get_or_insert_with(|| self.path.clone());
        }
    }

    fn adapt(&self, lora: &Rc<LoraSpec>) -> Rc<LoraSpec> {
        self.built.borrow_mut().adapted.push(self.path.clone());
        Rc::clone(lora)
    }

    /// Whether a target names this module: its whole path, or the end of it.
    fn is_target(&self, lora: &LoraSpec) -> bool {
        let ends_with = |target: &String| {
            self.path.strip_suffix(target.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        lora.targets.iter().any(ends_with)
    }

    /// A trained adapter weight, fp32 whatever the model's dtype (peft's `autocast_adapter_dtype`).
    pub(crate) fn adapter_parameter(&self, (_, name): (Part, &str), sizes: &[u64], init: Init) -> Tensor {
        let tensor = empty(&self.context, sizes, DType::Float32).into_parameter();
        self.list(&format!("{name}.weight"), tensor, init, true)
    }

    /// What was built; the builder has it no more.
    ///
    /// # Errors
    /// When the config asks for what is not computed here, or no layer answers to a LoRA target.
    pub(crate) fn finish(&self) -> Result<Vec<NewParameter>, BuildError> {
        let built = self.built.take();
        if let Some(error) = built.lacking {
            return Err(error.into());
        }
        let Some(lora) = &self.lora else { return Ok(built.parameters) };
        if let Some(path) = &built.unadapted {
            let problem = format!("`lora.targets`: adapters on the parameters of `{path}` are not trained");
            let hint = "name the linear layers of the attention alone: q_proj, k_proj, v_proj, o_proj".to_owned();
            return Err(BuildError::Refused { problem, hint });
        }
        if let Some(path) = built.targeted.iter().find(|path| !built.adapted.contains(path)) {
            let problem = format!("`lora.targets`: `{path}` is no linear layer");
            return Err(BuildError::Refused { problem, hint: "only linear layers get adapters".to_owned() });
        }
        if built.adapted.is_empty() {
            let problem = format!("`lora.targets`: no module is called {}", lora.targets.join(" or "));
            let hint = "set it to \"all-linear\" to adapt every linear layer".to_owned();
            return Err(BuildError::Refused { problem, hint });
        }
        Ok(built.parameters)
    }
}
