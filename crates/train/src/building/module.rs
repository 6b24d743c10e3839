//! [`Module`]: which module runs, for the errors that name it.

use std::rc::Rc;

use tonnage_core::dtype::DType;

use crate::tensor::{Context, Scope, Tensor};

/// Which of the modules that share a place: peft's stand in that of the layer they adapt.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Itself,
    BaseLayer,
    Dropout,
    Down,
    Up,
    Magnitude,
}

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

    /// The same of one of the modules that share its place.
    pub(crate) fn enter_part(&self, _part: Part, _own: &[&Tensor]) -> Scope<'_, u32> {
        self.enter()
    }

    /// The input that a module is called with.
    #[expect(clippy::unused_self, reason = "the simulation hooks it")]
    pub(crate) fn hook_input(&self, _part: Part, input: &Tensor) -> Tensor {
        input.clone()
    }

    /// What a module returns that does nothing to its input.
    #[expect(clippy::unused_self, reason = "the simulation hooks it")]
    pub(crate) fn call_identity(&self, _part: Part, input: &Tensor) -> Tensor {
        input.clone()
    }

    /// Tables of positions that something casts before the layer gets them.
    #[expect(clippy::unused_self, reason = "the simulation has hooks that cast them")]
    pub(crate) const fn cast_tables(&self, _tables: [&Tensor; 2], _recomputes: bool) -> Option<[Tensor; 2]> {
        None
    }

    /// What its weight makes of its input.
    #[expect(clippy::unused_self, reason = "the simulation has ranks that share the weight")]
    pub(crate) fn with_ranks(&self, input: &Tensor, compute: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
        compute(input)
    }

    /// `embedding(weight, ids, padding_idx)`
    #[expect(clippy::unused_self, reason = "the simulation has ranks that share the weight")]
    pub(crate) fn look_up(&self, weight: &Tensor, ids: &Tensor, padding_idx: Option<u64>) -> Tensor {
        weight.embedding(ids, padding_idx)
    }

    /// Its forward reads a parameter of one of the modules here.
    #[expect(clippy::unused_self, reason = "the simulation gathers it")]
    pub(crate) fn read(&self, _parameter: &Tensor) {}

    /// `module(hidden_states)`
    #[expect(clippy::unused_self, reason = "the simulation runs hooks round it")]
    pub(crate) fn call(&self, hidden_states: &Tensor, forward: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
        forward(hidden_states)
    }

    /// The same of one of the modules that share its place.
    #[expect(clippy::unused_self, reason = "the simulation runs hooks round it")]
    pub(crate) fn call_part(&self, _part: Part, input: &Tensor, forward: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
        forward(input)
    }

    /// The dtype of the weight of one of the modules here.
    #[expect(clippy::unused_self, reason = "the simulation knows shards")]
    pub(crate) fn weight_dtype(&self, _part: Part, weight: &Tensor) -> DType {
        weight.dtype()
    }
}
