//! Tensors: a view (sizes, strides, dtype) of reference-counted memory, with their place in the autograd graph.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use super::context::Context;
use super::layout::Layout;
use super::meta::TensorMeta;
use super::node::Node;
use super::object::{Detached, Memory, Object, Owner, Storage};
use super::shape::Shape;
use crate::dtype::DType;
use crate::host::HostKind;
use tonnage_alloc::trace::{AllocationId, Category};

/// Memory that one operator uses while it runs.
pub struct Scratch {
    _storage: Storage,
}

/// What makes a tensor a leaf that gradients accumulate into.
#[derive(Default)]
pub(super) struct Leaf {
    pub grad: RefCell<Option<Tensor>>,
    pub accumulator: RefCell<Option<Weak<Node>>>,
    /// Runs whenever a gradient arrives, before it is accumulated.
    pub arrival: RefCell<Option<Rc<dyn Fn()>>>,
    /// Runs whenever a gradient has been accumulated.
    pub post_accumulate: RefCell<Option<Rc<dyn Fn()>>>,
    /// Autocast's half copy while the cache holds it.
    pub cast: RefCell<Option<Tensor>>,
    /// The node that computes it, and which of the node's outputs it is, where a view has been put in its place.
    pub computed: RefCell<Option<(Rc<Node>, u32)>>,
}

/// How a tensor takes part in autograd.
#[derive(Clone)]
pub(super) enum History {
    None,
    Leaf(Rc<Leaf>),
    /// The node that computes it, and which of the node's outputs it is.
    Output(Rc<Node>, u32),
}

/// A tensor without numbers. Cloning it is taking another reference, as in Python.
#[derive(Clone)]
pub struct Tensor {
    object: Rc<Object>,
    pub(super) history: History,
}

impl From<Tensor> for Detached {
    fn from(tensor: Tensor) -> Self {
        Self(tensor.object)
    }
}

impl From<Detached> for Tensor {
    fn from(Detached(object): Detached) -> Self {
        Self { object, history: History::None }
    }
}

impl Tensor {
    #[inline]
    fn new(memory: Memory, layout: Layout, dtype: DType, is_view: bool) -> Self {
        Self::at_offset(memory, (layout, 0), dtype, is_view)
    }

    fn at_offset(memory: Memory, (layout, offset): (Layout, u64), dtype: DType, is_view: bool) -> Self {
        let object = Rc::new(Object { memory, layout, offset, dtype, is_view, sharers: Cell::new(0) });
        Self { object, history: History::None }
    }

    /// What can be seen of it.
    pub fn meta(&self) -> TensorMeta {
        TensorMeta { layout: self.object.layout.clone(), dtype: self.object.dtype }
    }

    /// A tensor outside autograd that looks like `meta`, in memory of its own that the trace has already.
    pub fn over(context: &Rc<Context>, id: AllocationId, meta: &TensorMeta) -> Self {
        Self::new(Memory::Own(Storage::new(context, Some(id))), meta.layout.clone(), meta.dtype, false)
    }

    /// A tensor outside autograd that looks like this one and has no memory.
    pub fn without_memory(&self) -> Self {
        let memory = Memory::Own(Storage::new(self.context(), None));
        Self::new(memory, self.layout().clone(), self.dtype(), false)
    }

    /// Takes its memory away, whose free the trace has already.
    pub fn forget_storage(&self) {
        self.object.storage().id.take();
    }

    /// A new contiguous tensor that `op` makes.
    pub fn empty(context: &Rc<Context>, op: &'static str, sizes: Shape, dtype: DType) -> Self {
        Self::empty_strided(context, op, Layout::contiguous(sizes), dtype)
    }

    /// A new dense tensor of the given layout that `op` makes.
    pub fn empty_strided(context: &Rc<Context>, op: &'static str, layout: Layout, dtype: DType) -> Self {
        let bytes = layout.sizes.numel().saturating_mul(dtype.size());
        let id = context.allocate(op, bytes, None);
        Self::new(Memory::Own(Storage::new(context, id)), layout, dtype, false)
    }

    /// A new contiguous tensor of the same sizes.
    pub fn another(&self) -> Self {
        Self::empty(self.context(), "empty.memory_format", *self.sizes(), self.dtype())
    }

    /// A contiguous view of a new tensor that `op` makes and nobody else holds: one object stands for both.
    pub fn empty_view(context: &Rc<Context>, op: &'static str, sizes: Shape, dtype: DType) -> Self {
        let id = context.allocate(op, sizes.numel().saturating_mul(dtype.size()), None);
        Self::new(Memory::Own(Storage::new(context, id)), Layout::contiguous(sizes), dtype, true)
    }

    /// A leaf that requires gradients: the same memory, now a parameter.
    pub fn into_parameter(self) -> Self {
        Self { history: History::Leaf(Rc::default()), ..self }
    }

    /// A contiguous tensor on the host.
    pub fn on_host(context: &Rc<Context>, sizes: Shape, dtype: DType, held: (HostKind, Category)) -> Self {
        let host = context.host();
        let _stream = host.enter_stream(held.0.stream());
        let _category = host.enter_category(held.1);
        Self::empty(host, "empty.memory_format", sizes, dtype)
    }

    /// `tensor.to("cuda")` of one that lies on the host.
    pub fn to_device(&self, context: &Rc<Context>) -> Self {
        context.count_link(self.bytes());
        Self::empty_strided(context, "_to_copy.default", self.layout().clone(), self.dtype())
    }

    /// `tensor.to("cpu")`, into memory of that kind.
    pub fn to_host(&self, held: (HostKind, Category)) -> Self {
        self.context().count_link(self.bytes());
        Self::on_host(self.context(), *self.sizes(), self.dtype(), held)
    }

    /// A tensor that holds no device memory.
    pub fn nowhere(context: &Rc<Context>, sizes: Shape, dtype: DType) -> Self {
        Self::new(Memory::Own(Storage::new(context, None)), Layout::contiguous(sizes), dtype, false)
    }

    /// Gives a tensor that holds no device memory some, made by `op`.
    pub fn materialize(&self, op: &'static str) {
        self.alloc_storage(op, self.numel().saturating_mul(self.dtype().size()));
    }

    /// Memory that `op` needs while it runs and that is not its result.
    pub fn scratch(context: &Rc<Context>, op: &'static str, bytes: u64) -> Scratch {
        Self::scratch_sized(context, op, (bytes, 0))
    }

    /// The same of a size that has a name on other devices.
    pub fn scratch_sized(context: &Rc<Context>, op: &'static str, bytes: (u64, u32)) -> Scratch {
        let id = context.allocate_sized(op, bytes, Some(Category::OpInternal));
        Scratch { _storage: Storage::new(context, id) }
    }

    /// `untyped_storage().resize_(bytes)` of a storage without memory; one that has memory keeps it.
    pub fn alloc_storage(&self, op: &'static str, bytes: u64) {
        let storage = self.object.storage();
        if storage.id.get().is_none() {
            storage.id.set(storage.context.allocate(op, bytes, None));
        }
    }

    /// `untyped_storage().resize_(0)`: the tensor stays, its memory goes.
    pub fn free_storage(&self) {
        self.object.storage().free();
    }

    /// Whether both are the same tensor object (Python's `is`).
    pub fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.object, &other.object)
    }

    /// The context it was made in.
    pub fn context(&self) -> &Rc<Context> {
        &self.object.storage().context
    }

    /// How it lies in its memory.
    pub fn layout(&self) -> &Layout {
        &self.object.layout
    }

    /// As `tensor.shape`.
    pub fn sizes(&self) -> &Shape {
        &self.object.layout.sizes
    }

    /// Its strides, in elements.
    pub fn strides(&self) -> Shape {
        self.object.layout.strides()
    }

    /// The size of dimension `at`, counted from the end when negative.
    pub fn size(&self, at: isize) -> u64 {
        let at = if at < 0 { self.object.layout.sizes.len().wrapping_add_signed(at) } else { at as usize };
        self.object.layout.sizes.get(at).copied().unwrap_or(1)
    }

    /// Number of elements.
    pub fn numel(&self) -> u64 {
        self.object.layout.sizes.numel()
    }

    /// Bytes of its elements, saturating.
    pub fn bytes(&self) -> u64 {
        self.numel().saturating_mul(self.dtype().size())
    }

    /// Its element type.
    pub fn dtype(&self) -> DType {
        self.object.dtype
    }

    /// Whether operations on it are recorded for backward.
    pub fn requires_grad(&self) -> bool {
        !matches!(self.history, History::None)
    }

    /// Whether it is row-major in memory.
    pub fn is_contiguous(&self) -> bool {
        self.object.layout.is_contiguous()
    }

    /// Its accumulated gradient.
    pub fn grad(&self) -> Option<Tensor> {
        self.leaf().and_then(|leaf| leaf.grad.borrow().clone())
    }

    /// Whether it has an accumulated gradient.
    pub fn has_grad(&self) -> bool {
        self.leaf().is_some_and(|leaf| leaf.grad.borrow().is_some())
    }

    /// Replaces its accumulated gradient.
    pub fn set_grad(&self, grad: Option<Tensor>) {
        if let Some(leaf) = self.leaf() {
            let old = leaf.grad.replace(grad);
            drop(old);
        }
    }

    /// Runs `hook` after each `AccumulateGrad` of this leaf; it replaces an earlier one.
    pub fn register_post_accumulate_grad_hook(&self, hook: impl Fn() + 'static) {
        if let Some(leaf) = self.leaf() {
            leaf.post_accumulate.replace(Some(Rc::new(hook)));
        }
    }

    /// Runs `hook` before each `AccumulateGrad` of this leaf; it replaces an earlier one.
    pub fn register_arrival_hook(&self, hook: Option<Rc<dyn Fn()>>) {
        if let Some(leaf) = self.leaf() {
            leaf.arrival.replace(hook);
        }
    }

    /// `setattr(module, name, output)` where this is what the module has: its gradients go where those of `output` do.
    pub fn stand_for(&self, output: &Tensor) {
        if let (Some(leaf), History::Output(node, at)) = (self.leaf(), &output.history) {
            let earlier = leaf.computed.replace(Some((Rc::clone(node), *at)));
            drop(earlier);
        }
    }

    pub(super) fn leaf(&self) -> Option<&Rc<Leaf>> {
        match &self.history {
            History::Leaf(leaf) => Some(leaf),
            _ => None,
        }
    }

    /// The allocation that holds it.
    pub fn allocation(&self) -> Option<AllocationId> {
        self.object.storage().allocation()
    }

    /// The module that made its memory; 0 where there is none.
    pub fn module(&self) -> u32 {
        self.context().module_of(self.allocation())
    }

    pub fn set_category(&self, category: Category) {
        if let Some(id) = self.allocation() {
            self.context().set_category(id, category);
        }
    }

    /// `tensor.data = data`: its own memory goes, and it lies in that of `data`, whose sizes are the same.
    pub fn set_data(&self, data: &Tensor) {
        let storage = self.object.storage();
        storage.free();
        storage.data.replace(Some(data.detached()));
    }

    /// `tensor.data = torch.empty(0)`: nothing of its own, and nothing of another's.
    pub fn clear_data(&self) {
        let storage = self.object.storage();
        storage.free();
        let data = storage.data.take();
        drop(data);
    }

    /// `tensor.detach()`: what it lies in now, also when its data is replaced later.
    pub(super) fn detached_data(&self) -> Detached {
        let data = self.object.storage().data.borrow().clone();
        match data {
            Some(data) => Self::from(data).alias(self.layout().clone()).detached(),
            None => self.detached(),
        }
    }

    /// `tensor.is_alias_of(other)`
    pub fn is_alias_of(&self, other: &Tensor) -> bool {
        Rc::ptr_eq(self.object.owner(), other.object.owner())
    }

    /// Another view of the same memory, outside autograd.
    pub fn alias(&self, layout: Layout) -> Self {
        self.alias_as(layout, true)
    }

    /// The same memory under another layout; `is_view` says whether autograd counts it as a view, which keeps its base.
    pub fn alias_as(&self, layout: Layout, is_view: bool) -> Self {
        let memory = Memory::Shared(Owner::new(&self.object));
        Self::at_offset(memory, (layout, self.object.offset), self.object.dtype, is_view)
    }

    /// Another view that begins so many elements behind this one, outside autograd.
    pub fn alias_behind(&self, layout: Layout, elements: u64) -> Self {
        let memory = Memory::Shared(Owner::new(&self.object));
        let offset = self.object.offset.saturating_add(elements);
        Self::at_offset(memory, (layout, offset), self.object.dtype, true)
    }

    /// Where in its memory it begins, in elements (`storage_offset`).
    pub(super) fn offset(&self) -> u64 {
        self.object.offset
    }

    /// The same object where another one stood in the graph.
    pub(super) fn with_history_of(self, history: &History) -> Self {
        Self { history: history.clone(), ..self }
    }

    /// The same object outside autograd.
    pub(super) fn detached(&self) -> Detached {
        Detached(Rc::clone(&self.object))
    }

    /// The same object as an output of a node.
    pub(super) fn with_history(self, node: Rc<Node>, output: u32) -> Self {
        Self { history: History::Output(node, output), ..self }
    }

    /// Whether nobody else holds this object; what shares its memory is another object.
    pub(super) fn is_unique(&self) -> bool {
        Rc::strong_count(&self.object) == 1 + self.object.sharers.get() as usize
    }

    /// Whether autograd may add into this tensor in place: the only reference to the only tensor on its storage, not
    /// a view (a view keeps its base alive), and dense (input_buffer.cpp, `can_accumulate_inplace`).
    pub(super) fn can_accumulate_in_place(&self) -> bool {
        Rc::strong_count(&self.object) == 1
            && Rc::strong_count(self.object.owner()) == 1
            && !self.object.is_view
            && self.object.layout.is_dense()
    }
}
