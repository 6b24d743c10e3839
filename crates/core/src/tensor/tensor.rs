//! Tensors: a view (sizes, strides, dtype) of a reference-counted storage, with their place in the autograd graph.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use super::autograd::{Edge, Node};
use super::context::Context;
use super::layout::{self, Shape};
use crate::dtype::DType;
use crate::trace::{AllocationId, Category};

/// Device memory; the last reference frees it. Without an id it stands for memory elsewhere (host scalars).
pub(super) struct Storage {
    context: Rc<Context>,
    id: Option<AllocationId>,
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.context.free(id);
        }
    }
}

/// Memory that one operator uses while it runs.
pub(crate) struct Scratch {
    _storage: Storage,
}

/// What makes a tensor a leaf that gradients accumulate into.
#[derive(Default)]
pub(super) struct Leaf {
    pub grad: RefCell<Option<Tensor>>,
    pub accumulator: RefCell<Weak<Node>>,
    /// Autocast's half copy while the cache holds it.
    pub cast: RefCell<Option<Tensor>>,
}

pub(super) struct TensorImpl {
    pub storage: Rc<Storage>,
    pub sizes: Shape,
    pub strides: Shape,
    pub dtype: DType,
    pub is_view: bool,
    pub history: History,
}

/// How a tensor takes part in autograd.
pub(super) enum History {
    None,
    Leaf(Rc<Leaf>),
    Output(Edge),
}

/// A tensor without numbers. Cloning it is taking another reference, as in Python.
#[derive(Clone)]
pub struct Tensor(pub(super) Rc<TensorImpl>);

impl Tensor {
    pub(super) fn from_parts(
        storage: Rc<Storage>,
        sizes: Shape,
        strides: Shape,
        dtype: DType,
        is_view: bool,
        history: History,
    ) -> Self {
        Self(Rc::new(TensorImpl { storage, sizes, strides, dtype, is_view, history }))
    }

    /// A new contiguous tensor that `op` makes.
    pub(crate) fn empty(context: &Rc<Context>, op: &'static str, sizes: Shape, dtype: DType) -> Self {
        Self::empty_strided(context, op, sizes, sizes.contiguous_strides(), dtype)
    }

    /// A new dense tensor with the given strides that `op` makes.
    pub(crate) fn empty_strided(
        context: &Rc<Context>,
        op: &'static str,
        sizes: Shape,
        strides: Shape,
        dtype: DType,
    ) -> Self {
        let bytes = sizes.numel().saturating_mul(dtype.size());
        let id = context.allocate(op, bytes, None);
        let storage = Rc::new(Storage { context: Rc::clone(context), id });
        Self::from_parts(storage, sizes, strides, dtype, false, History::None)
    }

    /// A leaf that requires gradients: the same memory, now a parameter.
    pub(crate) fn into_parameter(self) -> Self {
        let inner = &self.0;
        let storage = Rc::clone(&inner.storage);
        Self::from_parts(storage, inner.sizes, inner.strides, inner.dtype, false, History::Leaf(Rc::default()))
    }

    /// A tensor that holds no device memory.
    pub(crate) fn nowhere(context: &Rc<Context>, sizes: Shape, dtype: DType) -> Self {
        let storage = Rc::new(Storage { context: Rc::clone(context), id: None });
        Self::from_parts(storage, sizes, sizes.contiguous_strides(), dtype, false, History::None)
    }

    /// Memory that `op` needs while it runs and that is not its result.
    pub(crate) fn scratch(context: &Rc<Context>, op: &'static str, bytes: u64) -> Scratch {
        let id = context.allocate(op, bytes, Some(Category::OpInternal));
        Scratch { _storage: Storage { context: Rc::clone(context), id } }
    }

    /// The context it was made in.
    pub fn context(&self) -> &Rc<Context> {
        &self.0.storage.context
    }

    /// Its sizes.
    pub fn sizes(&self) -> &Shape {
        &self.0.sizes
    }

    /// Its strides, in elements.
    pub fn strides(&self) -> &Shape {
        &self.0.strides
    }

    /// The size of dimension `at`, counted from the end when negative.
    pub fn size(&self, at: isize) -> u64 {
        let at = if at < 0 { self.0.sizes.len().wrapping_add_signed(at) } else { at as usize };
        self.0.sizes.get(at).copied().unwrap_or(1)
    }

    /// Number of elements.
    pub fn numel(&self) -> u64 {
        self.0.sizes.numel()
    }

    /// Its element type.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Whether operations on it are recorded for backward.
    pub fn requires_grad(&self) -> bool {
        !matches!(self.0.history, History::None)
    }

    /// Whether it is row-major in memory.
    pub fn is_contiguous(&self) -> bool {
        layout::is_contiguous(&self.0.sizes, &self.0.strides)
    }

    /// Its accumulated gradient.
    pub fn grad(&self) -> Option<Tensor> {
        self.leaf().and_then(|leaf| leaf.grad.borrow().clone())
    }

    /// Replaces its accumulated gradient.
    pub fn set_grad(&self, grad: Option<Tensor>) {
        if let Some(leaf) = self.leaf() {
            let old = leaf.grad.replace(grad);
            drop(old);
        }
    }

    pub(super) fn leaf(&self) -> Option<&Rc<Leaf>> {
        match &self.0.history {
            History::Leaf(leaf) => Some(leaf),
            _ => None,
        }
    }

    /// The allocation that holds it.
    pub(super) fn allocation(&self) -> Option<AllocationId> {
        self.0.storage.id
    }

    pub(super) fn set_category(&self, category: Category) {
        if let Some(id) = self.0.storage.id {
            self.context().set_category(id, category);
        }
    }

    /// Another view of the same memory, outside autograd.
    pub(crate) fn alias(&self, sizes: Shape, strides: Shape) -> Self {
        self.alias_as(sizes, strides, true)
    }

    /// The same memory under other sizes; `is_view` says whether autograd counts it as a view, which keeps its base.
    pub(crate) fn alias_as(&self, sizes: Shape, strides: Shape, is_view: bool) -> Self {
        Self::from_parts(Rc::clone(&self.0.storage), sizes, strides, self.0.dtype, is_view, History::None)
    }

    /// The same memory outside autograd (`detach`).
    pub fn detach(&self) -> Self {
        self.alias(self.0.sizes, self.0.strides)
    }

    /// The tensor as its own node saves it: without the history that would own the node.
    pub(super) fn saved_alias(&self) -> Self {
        self.detach()
    }

    /// The same tensor as the output of a node.
    pub(super) fn with_history(mut self, edge: Edge) -> Self {
        if let Some(inner) = Rc::get_mut(&mut self.0) {
            inner.history = History::Output(edge);
            return self;
        }
        let inner = &self.0;
        let storage = Rc::clone(&inner.storage);
        Self::from_parts(storage, inner.sizes, inner.strides, inner.dtype, inner.is_view, History::Output(edge))
    }

    /// Whether autograd may add into this tensor in place: the only reference to the only tensor on its storage, not
    /// a view (a view keeps its base alive), and dense (input_buffer.cpp, `can_accumulate_inplace`).
    pub(super) fn can_accumulate_in_place(&self) -> bool {
        Rc::strong_count(&self.0) == 1
            && Rc::strong_count(&self.0.storage) == 1
            && !self.0.is_view
            && layout::is_non_overlapping_and_dense(&self.0.sizes, &self.0.strides)
    }
}
