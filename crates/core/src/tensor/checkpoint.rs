//! Gradient checkpointing without reentrance (torch/utils/checkpoint.py, PyTorch 2.11): saved tensors are dropped in
//! the forward pass, and the first one that backward asks for recomputes the region, which stops as soon as all that
//! was saved is there again.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use super::autograd::Saved;
use super::context::Context;
use super::layout::Shape;
use super::tensor::Tensor;
use crate::dtype::DType;
use crate::trace::Category;

/// What happens to a tensor that a node saves.
#[derive(Clone)]
pub(super) enum SavedTensorHooks {
    /// First run: keep a placeholder.
    Forward(Rc<Frame>),
    /// Second run: fill the placeholders.
    Recompute(Rc<Frame>),
}

/// One checkpointed region.
pub(super) struct Frame {
    rerun: Box<dyn Fn()>,
    holders: RefCell<Vec<Weak<Holder>>>,
    refilled: Cell<usize>,
    is_recomputed: Cell<bool>,
}

/// Placeholder of a saved tensor; owned by the node that saved it.
pub(crate) struct Holder {
    frame: Rc<Frame>,
    context: Rc<Context>,
    tensor: RefCell<Option<Tensor>>,
    sizes: Shape,
    dtype: DType,
}

impl Holder {
    /// Applies the current hooks to a tensor about to be saved; `None` when there are none.
    pub(super) fn pack(tensor: &Tensor) -> Option<Saved> {
        let context = tensor.context();
        let hooks = context.hooks.borrow().clone()?;
        Some(match hooks {
            SavedTensorHooks::Forward(frame) => Saved::Packed(Self::placeholder(frame, tensor)),
            SavedTensorHooks::Recompute(frame) => {
                frame.refill(context, tensor);
                Saved::Tensor(tensor.without_history())
            }
        })
    }

    fn placeholder(frame: Rc<Frame>, tensor: &Tensor) -> Rc<Self> {
        let holder = Rc::new(Self {
            frame: Rc::clone(&frame),
            context: Rc::clone(tensor.context()),
            tensor: RefCell::new(None),
            sizes: *tensor.sizes(),
            dtype: tensor.dtype(),
        });
        frame.holders.borrow_mut().push(Rc::downgrade(&holder));
        holder
    }

    /// The tensor again; each can be unpacked once, as in PyTorch.
    pub(super) fn unpack(&self) -> Tensor {
        if !self.frame.is_recomputed.replace(true) {
            self.frame.recompute(&self.context);
        }
        let tensor = self.tensor.borrow_mut().take();
        // A region that does not save the same tensors again is PyTorch's CheckpointError; here it holds no memory.
        tensor.unwrap_or_else(|| Tensor::nowhere(&self.context, self.sizes, self.dtype))
    }
}

impl Frame {
    fn recompute(self: &Rc<Self>, context: &Rc<Context>) {
        let outer = context.hooks.replace(Some(SavedTensorHooks::Recompute(Rc::clone(self))));
        {
            let _grad = context.set_grad_enabled(true);
            let _node = context.enter_node(None);
            let _category = context.enter_category(Category::Recompute);
            (self.rerun)();
        }
        context.stopped.set(false);
        context.hooks.replace(outer);
    }

    fn refill(&self, context: &Context, tensor: &Tensor) {
        if context.stopped.get() {
            return;
        }
        let at = self.refilled.get();
        self.refilled.set(at + 1);
        let holders = self.holders.borrow();
        if let Some(holder) = holders.get(at).and_then(Weak::upgrade) {
            holder.tensor.replace(Some(tensor.without_history()));
        }
        if at + 1 == holders.len() {
            context.stopped.set(true);
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
        rerun: Box::new(rerun),
        holders: RefCell::default(),
        refilled: Cell::new(0),
        is_recomputed: Cell::new(false),
    });
    let outer = context.hooks.replace(Some(SavedTensorHooks::Forward(frame)));
    let output = region(input);
    context.hooks.replace(outer);
    output
}
