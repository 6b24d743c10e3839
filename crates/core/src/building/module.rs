//! [`Module`]: a module's place in the trace, and the hooks round its forward call.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::split::Split;
use crate::dtype::DType;
use crate::job::keys;
use crate::tensor::{Context, Scope, Tensor};

/// Which of the modules that share a place in the trace: peft's stand in that of the layer they adapt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Itself,
    BaseLayer,
    Dropout,
    Down,
    Up,
    Magnitude,
}

/// A module: its place in the trace, and which of those there.
pub(crate) type ModuleKey = (u32, Part);

/// What runs round every module's forward and backward.
pub(crate) trait EveryModule {
    /// Before its forward; `own` are its own parameters where it says them, else those that were made in its place.
    fn pre_forward(&self, module: ModuleKey, own: Option<&[&Tensor]>);

    fn post_forward(&self, module: ModuleKey);

    /// Where its forward reads another module's parameter.
    fn read(&self, module: ModuleKey, parameter: &Tensor);

    /// When the gradient of its output is there.
    fn pre_backward(&self, module: ModuleKey);

    /// When the gradient of its input is there.
    fn post_backward(&self, module: ModuleKey);
}

/// What runs before and after a layer, or an adapter's module (`register_forward_pre_hook`, `register_forward_hook`).
pub(crate) trait ForwardHooks {
    /// Before; the layer gets what it returns in place of the hidden states.
    fn pre_forward(self: Rc<Self>, hidden_states: &Tensor) -> Tensor;

    /// After, with the layer's output.
    fn post_forward(self: Rc<Self>, output: &Tensor);

    /// What tensors that float are cast to which the layer is called with, beside the hidden states too.
    fn input_dtype(&self) -> Option<DType> {
        None
    }

    /// The dtype of its weight as others see it before it runs.
    fn weight_dtype(&self, weight: &Tensor) -> DType {
        weight.dtype()
    }
}

/// The hooks of a model's modules.
#[derive(Default)]
pub(crate) struct ModuleHooks {
    hooked: RefCell<BTreeMap<ModuleKey, Rc<dyn ForwardHooks>>>,
    every: RefCell<Option<Rc<dyn EveryModule>>>,
}

impl ModuleHooks {
    /// Puts hooks round the forward calls of a module.
    pub(crate) fn register(&self, module: ModuleKey, hooks: Rc<dyn ForwardHooks>) {
        self.hooked.borrow_mut().insert(module, hooks);
    }

    /// Puts hooks round the forward calls of all modules.
    pub(crate) fn register_for_all(&self, hooks: Rc<dyn EveryModule>) {
        self.every.replace(Some(hooks));
    }

    /// Takes all hooks away: they hold the model's tensors.
    pub(crate) fn remove_all(&self) {
        let hooks = (self.hooked.take(), self.every.take());
        drop(hooks);
    }

    fn of(&self, module: ModuleKey) -> Option<Rc<dyn ForwardHooks>> {
        self.hooked.borrow().get(&module).cloned()
    }
}

/// A module's place in the trace.
#[derive(Clone)]
pub(crate) struct Module {
    context: Rc<Context>,
    id: u32,
    hooks: Rc<ModuleHooks>,
    split: Option<Split>,
}

impl Module {
    pub(crate) fn new(context: &Rc<Context>, id: u32, hooks: &Rc<ModuleHooks>) -> Self {
        Self { context: Rc::clone(context), id, hooks: Rc::clone(hooks), split: None }
    }

    /// The same module, of whose weight each rank has a part.
    pub(super) fn over_ranks(self, split: Option<Split>) -> Self {
        Self { split, ..self }
    }

    /// What its weight makes of its input, between what the ranks that share the weight send each other.
    pub(crate) fn with_ranks(&self, input: &Tensor, compute: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
        match self.split {
            Some(split) => split.run(input, compute),
            None => compute(input),
        }
    }

    /// `embedding(weight, ids, padding_idx)`
    pub(crate) fn look_up(&self, weight: &Tensor, ids: &Tensor, padding_idx: Option<u64>) -> Tensor {
        match self.split {
            Some(split) => split.look_up(weight, ids),
            None => weight.embedding(ids, padding_idx),
        }
    }

    /// Its forward call runs until the scope ends: what is allocated belongs to this module.
    pub(crate) fn enter(&self) -> Entered<'_> {
        self.enter_hooked(Part::Itself, None)
    }

    /// The same of one of the modules here, with its own parameters.
    pub(crate) fn enter_part(&self, part: Part, own: &[&Tensor]) -> Entered<'_> {
        self.enter_hooked(part, Some(own))
    }

    fn enter_hooked(&self, part: Part, own: Option<&[&Tensor]>) -> Entered<'_> {
        let scope = self.context.enter_module(self.id);
        let hooks = self.hooks.every.borrow().clone().filter(|_| !self.context.has_stopped());
        let key = (self.id, part);
        if let Some(hooks) = &hooks {
            hooks.pre_forward(key, own);
        }
        Entered { module: self, key, hooks, began: self.context.next_sequence(), _scope: scope }
    }

    /// The input as a module with parameters sees it that is called with it.
    pub(crate) fn hook_input(&self, part: Part, input: &Tensor) -> Tensor {
        let Some(hooks) = self.hooks.every.borrow().clone() else { return input.clone() };
        let key = (self.id, part);
        input.with_backward_hook("PostBackwardFunctionModuleBackward", move || hooks.post_backward(key))
    }

    /// Its forward reads a parameter of one of the modules here.
    pub(crate) fn read(&self, parameter: &Tensor) {
        let hooks = self.hooks.every.borrow().clone();
        if let Some(hooks) = hooks.filter(|_| !self.context.has_stopped()) {
            hooks.read((self.id, Part::Itself), parameter);
        }
    }

    /// What a module returns that does nothing to its input.
    pub(crate) fn call_identity(&self, part: Part, input: &Tensor) -> Tensor {
        let Some(hooks) = self.hooks.every.borrow().clone() else { return input.clone() };
        let input = self.hook_input(part, input);
        drop(self.enter_part(part, &[]));
        let key = (self.id, part);
        input.with_backward_hook("PreBackwardFunctionForModuleBackward", move || hooks.pre_backward(key))
    }

    /// The dtype of the weight of one of the modules here, which does not run yet.
    pub(crate) fn weight_dtype(&self, part: Part, weight: &Tensor) -> DType {
        self.hooks.of((self.id, part)).map_or(weight.dtype(), |hooks| hooks.weight_dtype(weight))
    }

    /// Tables that a layer is called with beside the hidden states, where hooks cast them. They do not when the layer runs again in
    /// backward, as one that `recomputes` does: checkpointing fails then ("Recomputed values ... have different metadata").
    pub(crate) fn cast_tables(&self, tables: [&Tensor; 2], recomputes: bool) -> Option<[Tensor; 2]> {
        let dtype = self.hooks.of((self.id, Part::Itself))?.input_dtype()?;
        if tables.iter().all(|table| table.dtype() == dtype || !table.dtype().is_floating_point()) {
            return None;
        }
        if recomputes {
            let problem = "`fsdp2.param_dtype`: FSDP2 casts this model's tables of positions, which are fp32, when a layer runs and not when it \
                           is recomputed: PyTorch's checkpoint fails";
            self.context.fail(&[keys::FSDP2_PARAM_DTYPE, keys::GRADIENT_CHECKPOINTING], || problem.to_owned());
        }
        let _module = self.context.enter_module(self.id);
        Some(tables.map(|table| table.to(dtype)))
    }

    /// `module(hidden_states)`: `forward` between the hooks that are registered on the module.
    pub(crate) fn call(&self, hidden_states: &Tensor, forward: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
        self.call_part(Part::Itself, hidden_states, forward)
    }

    /// The same of one of the modules here.
    pub(crate) fn call_part(
        &self,
        part: Part,
        hidden_states: &Tensor,
        forward: impl FnOnce(&Tensor) -> Tensor,
    ) -> Tensor {
        let Some(hooks) = self.hooks.of((self.id, part)) else { return forward(hidden_states) };
        let hidden_states = Rc::clone(&hooks).pre_forward(hidden_states);
        let output = forward(&hidden_states);
        hooks.post_forward(&output);
        output
    }
}

/// A forward call that runs.
pub(crate) struct Entered<'a> {
    module: &'a Module,
    key: ModuleKey,
    hooks: Option<Rc<dyn EveryModule>>,
    /// The next node's sequence number when it began.
    began: u32,
    _scope: Scope<'a, u32>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let context = &self.module.context;
        // A recomputation that has stopped leaves by an exception.
        let Some(hooks) = self.hooks.take().filter(|_| !context.has_stopped()) else { return };
        hooks.post_forward(self.key);
        let key = self.key;
        context.hook_latest_node(self.began, move || hooks.pre_backward(key));
    }
}
