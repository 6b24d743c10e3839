//! [`Module`]: a module's place in the trace, and the hooks round its forward call.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::tensor::{Context, Scope, Tensor};

/// What runs before and after a layer (`register_forward_pre_hook`, `register_forward_hook`).
pub(crate) trait ForwardHooks {
    /// Before; the layer gets what it returns in place of the hidden states.
    fn pre_forward(self: Rc<Self>, hidden_states: &Tensor) -> Tensor;

    /// After, with the layer's output.
    fn post_forward(self: Rc<Self>, output: &Tensor);
}

/// The hooks of a model's modules, by their index in the trace.
#[derive(Default)]
pub(crate) struct ModuleHooks(RefCell<BTreeMap<u32, Rc<dyn ForwardHooks>>>);

impl ModuleHooks {
    /// Puts hooks round the forward calls of a module.
    pub(crate) fn register(&self, module: u32, hooks: Rc<dyn ForwardHooks>) {
        self.0.borrow_mut().insert(module, hooks);
    }

    /// Takes all hooks away: they hold the model's tensors.
    pub(crate) fn remove_all(&self) {
        let hooks = self.0.take();
        drop(hooks);
    }

    fn of(&self, module: u32) -> Option<Rc<dyn ForwardHooks>> {
        self.0.borrow().get(&module).cloned()
    }
}

/// A module's place in the trace.
#[derive(Clone)]
pub(crate) struct Module {
    context: Rc<Context>,
    id: u32,
    hooks: Rc<ModuleHooks>,
}

impl Module {
    pub(crate) fn new(context: &Rc<Context>, id: u32, hooks: &Rc<ModuleHooks>) -> Self {
        Self { context: Rc::clone(context), id, hooks: Rc::clone(hooks) }
    }

    /// What is allocated until the scope ends belongs to this module.
    pub(crate) fn enter(&self) -> Scope<'_, u32> {
        self.context.enter_module(self.id)
    }

    /// `module(hidden_states)`: `forward` between the hooks that are registered on the module.
    pub(crate) fn call(&self, hidden_states: &Tensor, forward: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
        let Some(hooks) = self.hooks.of(self.id) else { return forward(hidden_states) };
        let hidden_states = Rc::clone(&hooks).pre_forward(hidden_states);
        let output = forward(&hidden_states);
        hooks.post_forward(&output);
        output
    }
}
