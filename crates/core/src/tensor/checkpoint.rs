//! Gradient checkpointing without reentrance (torch/utils/checkpoint.py, PyTorch 2.11): saved tensors are dropped in
//! the forward pass, and the first one that backward asks for recomputes the region, which stops as soon as all that
//! was saved is there again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::context::Context;
use super::handle::Tensor;
use super::object::Detached;
use super::shape::Shape;
use crate::dtype::DType;
use crate::trace::Category;

/// A tensor that a node keeps for its backward, as itself or through checkpointing's hooks.
pub(crate) enum Saved {
    Tensor(Detached),
    Packed(Holder),
}

impl Saved {
    /// The tensor as the current hooks keep it.
    pub(super) fn packed(tensor: &Tensor) -> Self {
        Holder::pack(tensor).unwrap_or_else(|| Self::Tensor(tensor.detached()))
    }

    /// The tensor; recomputes the checkpointed region when that is where it comes from.
    pub(crate) fn unpack(&self) -> Tensor {
        match self {
            Self::Tensor(tensor) => Tensor::from(tensor.clone()),
            Self::Packed(holder) => holder.unpack(),
        }
    }
}

/// What happens to a tensor that a node saves.
enum SavedTensorHooks {
    /// First run: keep a placeholder.
    Forward(Rc<Frame>),
    /// Second run: fill the placeholders.
    Recompute(Rc<Frame>),
}

/// Room for so many saved tensors is made in advance: those of a decoder layer.
const EXPECTED_SLOTS: usize = 48;

/// One checkpointed region.
pub(super) struct Frame {
    context: Rc<Context>,
    rerun: Box<dyn Fn()>,
    /// What the first run saved, in order.
    slots: RefCell<Vec<Slot>>,
    refilled: Cell<usize>,
    is_recomputed: Cell<bool>,
}

/// A saved tensor between the two runs.
enum Slot {
    Waiting(Shape, DType),
    Refilled(Detached),
    /// Its node has gone, or has taken it out: each can be unpacked once, as in PyTorch.
    Gone,
}

/// Placeholder of a saved tensor; owned by the node that saved it.
pub(crate) struct Holder {
    frame: Rc<Frame>,
    at: usize,
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl Holder {
    /// Applies the current hooks to a tensor about to be saved; `None` when there are none.
    fn pack(tensor: &Tensor) -> Option<Saved> {
        let context = tensor.context();
        let hooks = context.saved_tensor_hooks.borrow();
        Some(match hooks.as_ref()?.downcast_ref()? {
            SavedTensorHooks::Forward(frame) => Saved::Packed(frame.hold(tensor)),
            SavedTensorHooks::Recompute(frame) => {
                frame.refill(tensor);
                Saved::Tensor(tensor.detached())
            }
        })
    }

    fn take(&self) -> Slot {
        std::mem::replace(&mut self.frame.slots.borrow_mut()[self.at], Slot::Gone)
    }

    /// The tensor again; recomputes the region if that was not done yet.
    fn unpack(&self) -> Tensor {
        if !self.frame.is_recomputed.replace(true) {
            self.frame.recompute();
        }
        let context = &self.frame.context;
        // A region that does not save the same tensors again is PyTorch's CheckpointError; here it holds no memory.
        match self.take() {
            Slot::Refilled(tensor) => tensor.into(),
            Slot::Waiting(sizes, dtype) => Tensor::nowhere(context, sizes, dtype),
            Slot::Gone => Tensor::nowhere(context, Shape::new(&[]), DType::Float32),
        }
    }
}

impl Frame {
    fn hold(self: &Rc<Self>, tensor: &Tensor) -> Holder {
        let mut slots = self.slots.borrow_mut();
        slots.push(Slot::Waiting(*tensor.sizes(), tensor.dtype()));
        Holder { frame: Rc::clone(self), at: slots.len() - 1 }
    }

    fn recompute(self: &Rc<Self>) {
        let context = &self.context;
        let outer = context.saved_tensor_hooks.replace(Some(Rc::new(SavedTensorHooks::Recompute(Rc::clone(self)))));
        {
            let _grad = context.set_grad_enabled(true);
            let _node = context.enter_node(None);
            let _category = context.enter_category(Category::Recompute);
            (self.rerun)();
        }
        context.stopped.set(false);
        context.saved_tensor_hooks.replace(outer);
    }

    fn refill(&self, tensor: &Tensor) {
        if self.context.stopped.get() {
            return;
        }
        let at = self.refilled.get();
        self.refilled.set(at + 1);
        let mut slots = self.slots.borrow_mut();
        if let Some(slot @ Slot::Waiting(..)) = slots.get_mut(at) {
            // `x.detach() if x.requires_grad else x`
            *slot = Slot::Refilled(if tensor.requires_grad() { tensor.detached_data() } else { tensor.detached() });
        }
        if at + 1 == slots.len() {
            self.context.stopped.set(true);
        }
    }
}

/// Runs `region` on `input` now and again in backward, keeping only the input (and what `region` itself captures).
pub fn checkpoint(input: &Tensor, region: impl Fn(&Tensor) -> Tensor + 'static) -> Tensor {
    let context = Rc::clone(input.context());
    let region = Rc::new(region);
    let autocast = context.autocast.get();
    let rerun = {
        let (context, input, region) = (Rc::clone(&context), input.clone(), Rc::clone(&region));
        move || {
            let _autocast = context.autocast(autocast);
            let _module = context.enter_module(0);
            drop(region(&input));
        }
    };
    let frame = Rc::new(Frame {
        context: Rc::clone(&context),
        rerun: Box::new(rerun),
        slots: RefCell::new(Vec::with_capacity(EXPECTED_SLOTS)),
        refilled: Cell::new(0),
        is_recomputed: Cell::new(false),
    });
    let outer = context.saved_tensor_hooks.replace(Some(Rc::new(SavedTensorHooks::Forward(frame))));
    let output = region(input);
    context.saved_tensor_hooks.replace(outer);
    output
}
