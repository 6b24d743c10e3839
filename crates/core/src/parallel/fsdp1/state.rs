//! The hooks round a layer and round the model (_runtime_utils.py).

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use crate::building::{ForwardHooks, ModuleHooks};
use crate::dtype::DType;
use crate::job::BackwardPrefetch;
use crate::tensor::Tensor;
use crate::trace::Category;

use super::Shared;
use super::handle::{Handle, TrainingState};

/// The states of a model, the root's first.
pub(super) struct Tree {
    pub shared: Rc<Shared>,
    states: Vec<Rc<State>>,
    buffers: RefCell<Vec<Tensor>>,
    /// `_exec_order_data.handles_post_forward_order`
    post_forward_order: RefCell<Vec<Rc<Handle>>>,
    /// Inputs of frozen layers, leaves with their gradients, where hooks hold them.
    held: RefCell<Vec<Tensor>>,
    is_initialized: Cell<bool>,
    post_backward_callback_queued: Cell<bool>,
}

/// A module in `FullyShardedDataParallel`.
pub(super) struct State {
    tree: Weak<Tree>,
    handle: Rc<Handle>,
}

impl Tree {
    pub(super) fn new(
        shared: Rc<Shared>,
        hooks: &ModuleHooks,
        handles: Vec<Rc<Handle>>,
        buffers: Vec<Tensor>,
    ) -> Rc<Self> {
        let tree = Rc::new_cyclic(|tree| {
            let states = handles.into_iter().map(|handle| Rc::new(State { tree: Weak::clone(tree), handle }));
            Self {
                shared,
                states: states.collect(),
                buffers: RefCell::new(buffers),
                post_forward_order: RefCell::default(),
                held: RefCell::default(),
                is_initialized: Cell::new(false),
                post_backward_callback_queued: Cell::new(false),
            }
        });
        for state in &tree.states {
            if let Some(module) = state.handle.unit {
                hooks.register(module, Rc::<State>::clone(state));
            }
            let weak = Rc::downgrade(state);
            state.handle.flat.register_post_accumulate_grad_hook(move || {
                weak.upgrade().iter().for_each(|state| state.post_backward());
            });
        }
        tree
    }

    /// The model's own state.
    pub(super) fn root(&self) -> Option<&Rc<State>> {
        self.states.first()
    }

    pub(super) fn handles(&self) -> impl Iterator<Item = &Rc<Handle>> {
        self.states.iter().map(|state| &state.handle)
    }

    /// `_lazy_init`
    pub(super) fn initialize(&self) {
        if !self.is_initialized.replace(true) {
            self.cast_buffers();
            self.handles().for_each(|handle| handle.init_attributes());
        }
    }

    pub(super) fn root_pre_forward(&self) {
        self.initialize();
        self.handles().for_each(|handle| handle.reset_grad_info());
    }

    /// `_cast_buffers_to_dtype_and_device`
    fn cast_buffers(&self) {
        let Some(cast) = self.shared.options.buffer_dtype else { return };
        let _category = self.shared.context.enter_category(Category::Buffer);
        for buffer in self.buffers.take().iter().filter(|buffer| buffer.dtype() == cast) {
            let data = Tensor::empty(&self.shared.context, "_to_copy.default", *buffer.sizes(), cast);
            buffer.set_data(&data);
        }
    }

    fn record_post_forward(&self, handle: &Rc<Handle>) {
        let mut order = self.post_forward_order.borrow_mut();
        // An index of 0 counts as none there.
        if handle.post_forward_index.get().is_none_or(|index| index == 0) {
            handle.post_forward_index.set(Some(order.len()));
        }
        order.push(Rc::clone(handle));
    }

    /// `_prefetch_handle` in backward.
    fn prefetch(&self, current: &Handle, when: BackwardPrefetch) {
        if self.shared.options.backward_prefetch != when {
            return;
        }
        let order = self.post_forward_order.borrow();
        let before = current.post_forward_index.get().and_then(|index| index.checked_sub(1));
        let Some(target) = before.and_then(|index| order.get(index)) else { return };
        if target.needs_pre_backward_unshard.get() && !target.prefetched.get() {
            let state = target.training_state.replace(TrainingState::BackwardPre);
            target.unshard();
            target.training_state.set(state);
            target.prefetched.set(true);
        }
    }

    /// `_register_post_backward_final_callback`
    fn queue_final_callback(self: &Rc<Self>) {
        if self.post_backward_callback_queued.replace(true) {
            return;
        }
        let tree = Rc::clone(self);
        self.shared.context.queue_callback(move || tree.post_backward_final_callback());
        self.handles().for_each(|handle| handle.reset_grad_info());
    }

    fn post_backward_final_callback(&self) {
        self.post_forward_order.borrow_mut().clear();
        drop(self.held.take());
        for handle in self.handles() {
            handle.catch_all_reshard();
            handle.prepare_gradient_for_optim();
            handle.ran_pre_backward_hook.set(false);
            handle.needs_pre_backward_unshard.set(false);
            handle.post_forward_index.set(None);
            handle.training_state.set(TrainingState::Idle);
            handle.prefetched.set(false);
        }
        self.post_backward_callback_queued.set(false);
    }
}

impl State {
    /// `_pre_forward` of the model, whose inputs are token ids.
    pub(super) fn pre_forward_of_root(&self) {
        self.handle.training_state.set(TrainingState::Forward);
        if !self.handle.prefetched.get() {
            self.handle.unshard();
        }
    }

    /// `_post_forward`
    pub(super) fn after_forward(this: &Rc<Self>, outputs: &[&Tensor]) {
        let Some(tree) = this.tree.upgrade() else { return };
        let handle = &this.handle;
        tree.record_post_forward(handle);
        handle.reshard(!handle.is_root() && tree.shared.options.reshard_after_forward);
        if tree.shared.context.is_grad_enabled() {
            handle.needs_pre_backward_unshard.set(false);
            handle.ran_pre_backward_hook.set(false);
            for output in outputs.iter().filter(|output| output.requires_grad()) {
                let state = Rc::clone(this);
                output.register_hook(move || state.pre_backward());
                handle.needs_pre_backward_unshard.set(true);
            }
        }
        handle.training_state.set(TrainingState::Idle);
    }

    /// `_pre_backward_hook`
    fn pre_backward(&self) {
        let Some(tree) = self.tree.upgrade().filter(|_| !self.handle.ran_pre_backward_hook.get()) else { return };
        if self.handle.is_root() {
            tree.queue_final_callback();
        }
        self.handle.training_state.set(TrainingState::BackwardPre);
        if self.handle.needs_pre_backward_unshard.replace(false) && !self.handle.prefetched.get() {
            self.handle.unshard();
        }
        tree.prefetch(&self.handle, BackwardPrefetch::Pre);
        self.handle.prepare_gradient_for_backward();
        self.handle.ran_pre_backward_hook.set(true);
    }

    /// `_register_post_backward_reshard_only_hook`: a frozen layer is resharded when the gradient of its input is there.
    fn reshard_after_input(self: Rc<Self>, hidden_states: &Tensor) -> Tensor {
        let hook = |state: Rc<Self>| move || state.reshard_in_backward();
        hidden_states.register_hook(hook(Rc::clone(&self)));
        // Of a leaf, which the first layer gets where its input is made to ask for a gradient.
        hidden_states.register_post_accumulate_grad_hook(hook(Rc::clone(&self)));
        if let Some(tree) = self.tree.upgrade().filter(|_| self.handle.shared.holds_inputs) {
            tree.held.borrow_mut().push(hidden_states.clone());
        }
        hidden_states.clone()
    }

    /// Whether its forward runs for its backward, or not at all: the recomputation has all that it needs.
    fn skips_forward(&self) -> bool {
        self.handle.training_state.get() == TrainingState::BackwardPre || self.handle.shared.context.has_stopped()
    }

    /// `_post_backward_hook`
    fn post_backward(&self) {
        if self.handle.flat.has_grad() {
            self.reshard_in_backward();
            self.handle.reduce_grad();
        }
    }

    /// `_post_backward_reshard`
    fn reshard_in_backward(&self) {
        self.handle.training_state.set(TrainingState::BackwardPost);
        self.handle.reshard(self.handle.frees_in_backward());
        if let Some(tree) = self.tree.upgrade() {
            tree.prefetch(&self.handle, BackwardPrefetch::Post);
        }
    }
}

impl ForwardHooks for State {
    fn pre_forward(self: Rc<Self>, hidden_states: &Tensor) -> Tensor {
        // A checkpointed layer runs again: the checkpoint is inside of the wrapper, and round those of adapters.
        if self.skips_forward() {
            return hidden_states.clone();
        }
        self.pre_forward_of_root();
        let is_grad_enabled = self.handle.shared.context.is_grad_enabled();
        if self.handle.trains() || !hidden_states.requires_grad() || !is_grad_enabled {
            return hidden_states.clone();
        }
        self.reshard_after_input(hidden_states)
    }

    fn post_forward(self: Rc<Self>, output: &Tensor) {
        if !self.skips_forward() {
            Self::after_forward(&self, &[output]);
        }
    }

    fn weight_dtype(&self, _weight: &Tensor) -> DType {
        self.handle.seen_dtype.get()
    }
}
