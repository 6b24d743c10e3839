//! The hooks round a layer and round the model (_fsdp_state.py, `FSDPState`).

use std::cell::Cell;
use std::rc::{Rc, Weak};

use crate::building::{ForwardHooks, ModuleHooks, Part};
use crate::dtype::DType;
use crate::tensor::{Context, Scope, Tensor};

use super::group::{ParamGroup, TrainingState};

/// The states of a model, the root's first (`FSDPStateContext`).
pub(super) struct Tree {
    context: Rc<Context>,
    states: Vec<Rc<State>>,
    is_last_backward: Cell<bool>,
    post_backward_final_callback_queued: Cell<bool>,
}

/// A module with a group of parameters.
pub(super) struct State {
    tree: Weak<Tree>,
    /// The module in the trace; `None` is the root.
    module: Option<u32>,
    group: Rc<ParamGroup>,
    training_state: Cell<TrainingState>,
    /// What forward inputs are cast to.
    param_dtype: Option<DType>,
}

impl Tree {
    /// States over groups, the last of which is the root's; hooks are put round the others' modules.
    pub(super) fn new(
        context: &Rc<Context>,
        hooks: &ModuleHooks,
        groups: impl Iterator<Item = (Option<u32>, Rc<ParamGroup>)>,
        param_dtype: Option<DType>,
    ) -> Rc<Self> {
        let tree = Rc::new_cyclic(|tree| {
            let state = |(module, group)| {
                let training_state = Cell::new(TrainingState::Idle);
                Rc::new(State { tree: Weak::clone(tree), module, group, training_state, param_dtype })
            };
            let mut states: Vec<Rc<State>> = groups.map(state).collect();
            states.rotate_right(1);
            Self {
                context: Rc::clone(context),
                states,
                is_last_backward: Cell::new(true),
                post_backward_final_callback_queued: Cell::new(false),
            }
        });
        for state in &tree.states {
            if let Some(module) = state.module {
                hooks.register((module, Part::Itself), Rc::<State>::clone(state));
            }
        }
        tree
    }

    /// The model's own state.
    pub(super) fn root(&self) -> Option<&Rc<State>> {
        self.states.first()
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &Rc<ParamGroup>> {
        self.states.iter().map(|state| &state.group)
    }

    /// What schedules of pipelines say before each backward pass, and before they reduce (`set_is_last_backward`,
    /// `set_reshard_after_backward` and `set_requires_gradient_sync`).
    pub(super) fn set_last_backward(&self, is_last: bool) {
        self.is_last_backward.set(is_last);
        for group in self.groups() {
            group.reshard_after_backward.set(is_last);
            group.reduce_grads.set(is_last);
        }
    }

    /// `perform_reduce_grad` of a pipeline's stage: what the hooks of a backward pass would do.
    pub(super) fn reduce_gradients(&self) {
        self.set_last_backward(true);
        self.groups().for_each(|group| group.post_backward());
        self.root_post_backward_final_callback();
    }

    /// `_register_root_post_backward_final_callback`
    fn queue_final_callback(self: &Rc<Self>) {
        if !self.post_backward_final_callback_queued.replace(true) {
            let tree = Rc::clone(self);
            self.context.queue_callback(move || tree.root_post_backward_final_callback());
        }
    }

    /// Reduces what no hook has: the root's gradients, whose forward inputs ask for none.
    fn root_post_backward_final_callback(&self) {
        for state in &self.states {
            let group = &state.group;
            if group.training_state.get() != TrainingState::PostBackward {
                group.post_backward();
            }
            state.training_state.set(TrainingState::Idle);
            group.training_state.set(TrainingState::Idle);
            if self.is_last_backward.get() {
                group.finalize_backward();
            }
        }
        if let Some(root) = self.root().filter(|_| self.is_last_backward.get()) {
            root.group.comm.post_forward_order.borrow_mut().clear();
            drop(root.group.comm.reduce_scatter_state.take());
        }
        self.post_backward_final_callback_queued.set(false);
    }
}

impl State {
    /// `_pre_forward` of the model, whose inputs are token ids.
    pub(super) fn pre_forward_of_root(&self) {
        self.training_state.set(TrainingState::Forward);
        self.group.pre_forward();
    }

    /// `_post_forward`
    pub(super) fn after_forward(this: &Rc<Self>, outputs: &[&Tensor]) {
        if this.training_state.get() == TrainingState::PreBackward {
            return;
        }
        this.group.post_forward();
        for output in outputs {
            let state = Rc::clone(this);
            output.register_hook(move || state.pre_backward());
        }
        this.training_state.set(TrainingState::Idle);
        if this.module.is_none() {
            drop(this.group.comm.all_gather_state.take());
        }
    }

    fn pre_backward(&self) {
        let _module = self.enter_module();
        self.training_state.set(TrainingState::PreBackward);
        if let Some(tree) = self.tree.upgrade() {
            tree.queue_final_callback();
        }
        self.group.pre_backward();
    }

    /// What hooks allocate belongs to the layer, whoever runs when they do.
    fn enter_module(&self) -> Scope<'_, u32> {
        self.group.comm.context.enter_module(self.module.unwrap_or(0))
    }

    /// `cast_forward_inputs` of what comes first; tables beside it are cast as `input_dtype` says, masks are no numbers.
    fn cast_inputs(&self, hidden_states: &Tensor) -> Tensor {
        match self.param_dtype.filter(|_| hidden_states.dtype().is_floating_point()) {
            Some(dtype) => hidden_states.to(dtype),
            None => hidden_states.clone(),
        }
    }
}

impl ForwardHooks for State {
    fn pre_forward(self: Rc<Self>, hidden_states: &Tensor) -> Tensor {
        let _module = self.enter_module();
        if self.training_state.get() == TrainingState::PreBackward {
            // A checkpointed layer runs again.
            if !self.group.is_unsharded() {
                self.group.unshard();
                self.group.wait_for_unshard();
            }
            return hidden_states.clone();
        }
        self.training_state.set(TrainingState::Forward);
        let hidden_states = self.cast_inputs(hidden_states);
        self.group.pre_forward();
        if self.group.is_empty() {
            return hidden_states;
        }
        let group = Rc::clone(&self.group);
        hidden_states.with_backward_hook("RegisterPostBackwardFunctionBackward", move || group.post_backward())
    }

    fn input_dtype(&self) -> Option<DType> {
        self.param_dtype.filter(|_| self.training_state.get() != TrainingState::PreBackward)
    }

    fn post_forward(self: Rc<Self>, output: &Tensor) {
        Self::after_forward(&self, &[output]);
    }
}
