//! Gradient checkpointing without reentrance (torch/utils/checkpoint.py, PyTorch 2.11): saved tensors are dropped in
//! the forward pass, and the first one that backward asks for recomputes the region, which stops as soon as all that
//! was saved is there again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::context::Context;
use super::handle::{History, Tensor};
use super::object::Detached;
use super::reentrant::checkpoint_reentrant;
use super::saved::{EnteredHooks, Hooks, Keeper, Packed, Saved};
use super::shape::Shape;
use crate::dtype::DType;
use tonnage_alloc::trace::Category;

/// Room for so many saved tensors is made in advance: those of a decoder layer.
const EXPECTED_SLOTS: usize = 48;

/// One checkpointed region.
struct Frame {
    context: Rc<Context>,
    input: Kept,
    region: Box<dyn Fn(&Tensor) -> Tensor>,
    /// As it was in the first run.
    autocast: Option<DType>,
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

/// The hooks of the first run: a node keeps a place.
struct Forward(Rc<Frame>);

/// The hooks of the second run: places are filled.
struct Recompute(Rc<Frame>);

impl Hooks for Forward {
    fn pack(self: Rc<Self>, tensor: &Tensor) -> Saved {
        let at = self.0.hold(tensor);
        Packed::by(Rc::<Frame>::clone(&self.0), at)
    }

    fn copies(&self) -> bool {
        false
    }
}

impl Hooks for Recompute {
    fn pack(self: Rc<Self>, tensor: &Tensor) -> Saved {
        self.0.refill(tensor);
        Saved::Tensor(tensor.detached())
    }

    fn copies(&self) -> bool {
        false
    }
}

impl Keeper for Frame {
    /// The tensor again; recomputes the region if that was not done yet.
    fn unpack(self: Rc<Self>, at: u64) -> Tensor {
        if !self.is_recomputed.replace(true) {
            self.recompute();
        }
        let context = &self.context;
        // A region that does not save the same tensors again is PyTorch's CheckpointError; here it holds no memory.
        match self.take(at) {
            Slot::Refilled(tensor) => tensor.into(),
            Slot::Waiting(sizes, dtype) => Tensor::nowhere(context, sizes, dtype),
            Slot::Gone => Tensor::nowhere(context, Shape::new(&[]), DType::Float32),
        }
    }

    fn forget(&self, at: u64) {
        drop(self.take(at));
    }
}

impl Frame {
    fn hold(&self, tensor: &Tensor) -> u64 {
        let mut slots = self.slots.borrow_mut();
        slots.push(Slot::Waiting(*tensor.sizes(), tensor.dtype()));
        slots.len() as u64 - 1
    }

    fn take(&self, at: u64) -> Slot {
        match self.slots.borrow_mut().get_mut(at as usize) {
            Some(slot) => std::mem::replace(slot, Slot::Gone),
            None => Slot::Gone,
        }
    }

    fn recompute(self: &Rc<Self>) {
        let context = &self.context;
        let input = self.input.tensor();
        let hooks = EnteredHooks::enter(context, Rc::new(Recompute(Rc::clone(self))));
        {
            let _grad = context.set_grad_enabled(true);
            let _node = context.enter_node(None);
            let _category = context.enter_category(Category::Recompute);
            let _autocast = context.autocast(self.autocast);
            let _module = context.enter_module(0);
            drop((self.region)(&input));
        }
        context.stopped.set(false);
        drop(hooks);
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

/// The input of a region, which PyTorch has a node of its own save (`_NoopSaveInputs`).
enum Kept {
    Alive(Tensor),
    Hooked(Saved, History),
}

impl Kept {
    fn of(input: &Tensor) -> Self {
        let context = input.context();
        if !context.is_grad_enabled() || !context.has_saved_tensor_hooks() {
            return Self::Alive(input.clone());
        }
        // With it an empty tensor is saved, for the sake of which the node is made.
        let _dummy = Saved::packed(&Tensor::nowhere(context, Shape::new(&[0]), DType::Float32));
        Self::Hooked(Saved::packed(input), input.history.clone())
    }

    fn tensor(&self) -> Tensor {
        match self {
            Self::Alive(input) => input.clone(),
            Self::Hooked(saved, history) => saved.unpack().with_history_of(history),
        }
    }
}

/// Runs `region` on `input` now and again in backward, keeping only the input (and what `region` itself captures).
pub fn checkpoint(input: &Tensor, region: impl Fn(&Tensor) -> Tensor + 'static) -> Tensor {
    checkpoint_region(input, Box::new(region))
}

/// The same of a region with several results, which captures all that it is called with.
pub fn checkpoint_all(context: &Rc<Context>, region: impl Fn() -> Vec<Tensor> + 'static) -> Vec<Tensor> {
    // The first run alone leaves its results.
    let first = Rc::new(RefCell::new(Some(Vec::new())));
    let left = Rc::clone(&first);
    let nothing = Tensor::nowhere(context, Shape::new(&[0]), DType::Float32);
    let last = checkpoint(&nothing, move |input| {
        let results = region();
        let last = results.last().cloned().unwrap_or_else(|| input.clone());
        if let Some(left) = left.borrow_mut().as_mut() {
            *left = results;
        }
        last
    });
    drop(last);
    first.take().unwrap_or_default()
}

/// Compiled once, not for each region.
fn checkpoint_region(input: &Tensor, region: Box<dyn Fn(&Tensor) -> Tensor>) -> Tensor {
    let context = Rc::clone(input.context());
    if context.reenters() && context.is_grad_enabled() {
        return checkpoint_reentrant(input, region);
    }
    let frame = Rc::new(Frame {
        autocast: context.autocast.get(),
        input: Kept::of(input),
        region,
        slots: RefCell::new(Vec::with_capacity(EXPECTED_SLOTS)),
        refilled: Cell::new(0),
        is_recomputed: Cell::new(false),
        context: Rc::clone(&context),
    });
    let _hooks = EnteredHooks::enter(&context, Rc::new(Forward(Rc::clone(&frame))));
    (frame.region)(input)
}
