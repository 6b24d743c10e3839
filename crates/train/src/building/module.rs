//! [`Module`]: which module runs, for the errors that name it.

use std::rc::Rc;

use crate::tensor::{Context, Scope, Tensor};

/// A module by its number.
#[derive(Clone)]
pub(crate) struct Module {
    context: Rc<Context>,
    id: u32,
}

impl Module {
    pub(super) fn new(context: &Rc<Context>, id: u32) -> Self {
        Self { context: Rc::clone(context), id }
    }

    /// An error until the scope ends arose in this module.
    pub(crate) fn enter(&self) -> Scope<'_, u32> {
        self.context.enter_module(self.id)
    }

    /// `module(hidden_states)`
    #[expect(clippy::unused_self, reason = "the simulation runs hooks round it")]
    pub(crate) fn call(&self, hidden_states: &Tensor, forward: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
        forward(hidden_states)
    }
}
