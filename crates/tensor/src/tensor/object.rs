//! What a tensor holds: device memory, a layout over it, and who else shares it. It knows nothing of autograd.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::context::Context;
use super::layout::Layout;
use super::shape::Shape;
use crate::dtype::DType;
use tonnage_alloc::trace::AllocationId;

/// Device memory, freed when dropped. Without an id it stands for memory elsewhere (host scalars) or for none, as
/// after `resize_(0)`.
pub(super) struct Storage {
    pub context: Rc<Context>,
    pub id: Cell<Option<AllocationId>>,
    /// The tensor in whose memory this one's data lies since `Tensor::set_data`.
    pub data: RefCell<Option<Detached>>,
}

impl Storage {
    pub fn new(context: &Rc<Context>, id: Option<AllocationId>) -> Self {
        Self { context: Rc::clone(context), id: Cell::new(id), data: RefCell::default() }
    }

    pub fn allocation(&self) -> Option<AllocationId> {
        self.id.get().or_else(|| self.data.borrow().as_ref().and_then(|data| data.0.storage().allocation()))
    }

    pub fn free(&self) {
        if let Some(id) = self.id.take() {
            self.context.free(id);
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.free();
    }
}

/// A tensor object: a layout over memory that is its own or another object's.
pub(super) struct Object {
    pub memory: Memory,
    pub layout: Layout,
    /// Where in its memory it begins, in elements (`storage_offset`), as far as that is known.
    pub offset: u64,
    pub dtype: DType,
    pub is_view: bool,
    /// How many objects share this one's memory.
    pub sharers: Cell<u32>,
}

pub(super) enum Memory {
    Own(Storage),
    Shared(Owner),
}

/// The object whose memory another one shares; it lives as long as that one does.
pub(super) struct Owner(Rc<Object>);

impl Owner {
    pub fn new(object: &Rc<Object>) -> Self {
        let owner = Rc::clone(object.owner());
        owner.sharers.set(owner.sharers.get() + 1);
        Self(owner)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.sharers.set(self.0.sharers.get() - 1);
    }
}

impl Object {
    pub fn owner(self: &Rc<Self>) -> &Rc<Self> {
        match &self.memory {
            Memory::Own(_) => self,
            Memory::Shared(owner) => &owner.0,
        }
    }

    pub fn storage(&self) -> &Storage {
        match &self.memory {
            Memory::Own(storage) => storage,
            Memory::Shared(owner) => owner.0.storage(),
        }
    }
}

/// A tensor object without a history: a gradient, or what a node saves, which its edges tie to the graph already.
#[derive(Clone)]
pub struct Detached(pub(super) Rc<Object>);

impl Detached {
    /// How many hold it, and how many its memory's owner.
    pub(super) fn users(&self) -> usize {
        Rc::strong_count(&self.0) + Rc::strong_count(self.0.owner())
    }

    pub(super) fn looks_like(&self, sizes: &Shape, dtype: DType) -> bool {
        self.0.layout.sizes == *sizes && self.0.dtype == dtype
    }
}
