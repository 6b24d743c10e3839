//! What a node keeps of a tensor for its backward: the tensor itself, or what the hooks in force make of it
//! (`torch.autograd.graph.saved_tensors_hooks`, PyTorch 2.11).

use std::any::Any;
use std::rc::Rc;

use super::context::Context;
use super::handle::Tensor;
use super::object::Detached;

/// A tensor that a node keeps for its backward, as itself or through hooks.
pub enum Saved {
    Tensor(Detached),
    Packed(Packed),
}

/// What happens to a tensor that a node saves; the hooks that were entered last count.
pub(super) trait Hooks {
    /// What the node keeps in place of the tensor.
    fn pack(self: Rc<Self>, tensor: &Tensor) -> Saved;

    /// Whether it is copied, so that it matters as which view it is saved.
    fn copies(&self) -> bool;
}

/// Who keeps tensors for nodes.
pub(super) trait Keeper {
    /// The tensor of this number again.
    fn unpack(self: Rc<Self>, at: u64) -> Tensor;

    /// Its node has gone.
    fn forget(&self, _at: u64) {}
}

/// A saved tensor that somebody else keeps, under a number.
pub struct Packed {
    keeper: Rc<dyn Keeper>,
    at: u64,
}

impl Packed {
    pub(super) fn by(keeper: Rc<dyn Keeper>, at: u64) -> Saved {
        Saved::Packed(Self { keeper, at })
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        self.keeper.forget(self.at);
    }
}

impl Saved {
    /// The tensor as the current hooks keep it.
    pub(super) fn packed(tensor: &Tensor) -> Self {
        match tensor.context().hooks() {
            None => Self::Tensor(tensor.detached()),
            Some(hooks) => hooks.pack(tensor),
        }
    }

    /// The tensor; recomputes the checkpointed region when that is where it comes from.
    pub fn unpack(&self) -> Tensor {
        match self {
            Self::Tensor(tensor) => Tensor::from(tensor.clone()),
            Self::Packed(packed) => Rc::clone(&packed.keeper).unpack(packed.at),
        }
    }
}

/// Hooks that are in force until this is dropped.
pub struct EnteredHooks {
    context: Rc<Context>,
    outer: Option<Rc<dyn Any>>,
}

impl EnteredHooks {
    pub(super) fn enter(context: &Rc<Context>, hooks: Rc<dyn Hooks>) -> Self {
        let outer = context.saved_tensor_hooks.replace(Some(Rc::new(hooks)));
        Self { context: Rc::clone(context), outer }
    }
}

impl Drop for EnteredHooks {
    fn drop(&mut self) {
        self.context.saved_tensor_hooks.replace(self.outer.take());
    }
}

impl Context {
    /// Those in force.
    fn hooks(&self) -> Option<Rc<dyn Hooks>> {
        let hooks = self.saved_tensor_hooks.borrow();
        hooks.as_ref()?.downcast_ref::<Rc<dyn Hooks>>().cloned()
    }

    pub(super) fn has_saved_tensor_hooks(&self) -> bool {
        self.saved_tensor_hooks.borrow().is_some()
    }

    /// Whether saved tensors are copied, so that it matters as which view each is saved.
    pub fn copies_saved_tensors(&self) -> bool {
        self.has_saved_tensor_hooks() && self.hooks().is_some_and(|hooks| hooks.copies())
    }
}
