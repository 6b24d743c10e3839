//! The process a job runs in: its recorder, its devices, and what PyTorch keeps in thread-local state (grad mode,
//! autocast, the saved-tensor hooks of checkpointing). It knows no tensor: what holds some is told here without its type.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Deref;
use std::rc::Rc;

use super::other_devices::Devices;
use super::recorder::Recorder;
use super::ring::Ring;
use crate::Device;
use crate::dtype::DType;
use crate::host::HostMemory;
use crate::transformers::TransformersVersion;

/// What a hook puts off until the engine is done.
type Callback = Box<dyn FnOnce()>;

/// Which thread runs; cuBLAS handles and their workspaces belong to a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Thread {
    Main = 0,
    Autograd = 1,
}

/// What is told the place of a module in the trace.
type OutputHook = Rc<dyn Fn(u32)>;

/// One process on one device.
pub struct Context {
    recorder: Recorder,
    pub(super) devices: Devices,
    pub(super) grad_enabled: Cell<bool>,
    pub(super) autocast: Cell<Option<DType>>,
    /// What the end of the outermost autocast does: each drops the copy of a weight.
    pub(super) autocast_ends: RefCell<Vec<Box<dyn Fn()>>>,
    /// Those of `checkpoint.rs`.
    pub(super) saved_tensor_hooks: RefCell<Option<Rc<dyn Any>>>,
    pub(super) next_sequence: Cell<u32>,
    /// Whether the latest node is kept in mind, and which it is.
    pub(super) watches_nodes: Cell<bool>,
    pub(super) latest_node: RefCell<Option<Box<dyn Any>>>,
    /// The node that runs, where hooks may ask for it, and what they do when it has run (`node.register_hook`).
    pub(super) keeps_running_node: Cell<bool>,
    /// Whether backward passes run under the autocast that is on when they are asked for.
    pub(super) autocasts_backward: Cell<bool>,
    /// Whether the autocast that is on is that of another thread: one that is entered is the outermost of this one.
    pub(super) autocast_is_lent: Cell<bool>,
    /// What a node's result is made of, until that has been delivered.
    pub(super) kept_for_delivery: Cell<Option<Box<dyn Any>>>,
    pub(super) running_node: RefCell<Option<Rc<dyn Any>>>,
    pub(super) node_hooks: RefCell<Vec<Callback>>,
    linear_is_replaced: Cell<bool>,
    /// Modules that are an `nn.Linear`.
    linear_modules: RefCell<Vec<u32>>,
    embedding_modules: RefCell<Vec<u32>>,
    /// What runs when the gradient of a module's output is there, of outputs that no op has made differentiable.
    pub(super) output_hook: RefCell<Option<OutputHook>>,
    callbacks: RefCell<Vec<Callback>>,
    pub(super) thread: Cell<Thread>,
    pub(super) workspaces: Cell<[[bool; 2]; 2]>,
    padded_rows: Cell<bool>,
    packed_rows: Cell<bool>,
    places_first: Cell<bool>,
    /// Ranks that share the tokens of a row, and which this is.
    ring: Cell<Option<Ring>>,
    replays: Cell<u64>,
    scripted: Cell<bool>,
    transformers: Cell<TransformersVersion>,
    reenters: Cell<bool>,
    /// What the process keeps on the host, recorded as if that were a device.
    host: OnceCell<Rc<Self>>,
}

impl Deref for Context {
    type Target = Recorder;

    fn deref(&self) -> &Recorder {
        &self.recorder
    }
}

impl Context {
    /// A fresh process on a device; nothing is allocated yet.
    pub fn new(device: Device) -> Rc<Self> {
        Self::with_other_devices(device, &[])
    }

    /// The same, asking other devices what the device is asked.
    pub fn with_other_devices(device: Device, others: &[Device]) -> Rc<Self> {
        Rc::new(Self {
            recorder: Recorder::new(),
            devices: Devices::new(device, others),
            grad_enabled: Cell::new(true),
            autocast: Cell::new(None),
            autocast_ends: RefCell::default(),
            saved_tensor_hooks: RefCell::default(),
            next_sequence: Cell::new(0),
            watches_nodes: Cell::new(false),
            latest_node: RefCell::default(),
            keeps_running_node: Cell::new(false),
            autocasts_backward: Cell::new(false),
            autocast_is_lent: Cell::new(false),
            kept_for_delivery: Cell::new(None),
            running_node: RefCell::default(),
            node_hooks: RefCell::default(),
            linear_is_replaced: Cell::new(false),
            linear_modules: RefCell::default(),
            embedding_modules: RefCell::default(),
            output_hook: RefCell::default(),
            callbacks: RefCell::default(),
            thread: Cell::new(Thread::Main),
            workspaces: Cell::default(),
            padded_rows: Cell::new(false),
            packed_rows: Cell::new(false),
            places_first: Cell::new(false),
            ring: Cell::new(None),
            replays: Cell::new(1),
            scripted: Cell::new(false),
            transformers: Cell::default(),
            reenters: Cell::default(),
            host: OnceCell::new(),
        })
    }

    /// The host, whose tensors are those of a context of its own.
    pub fn host(&self) -> &Rc<Self> {
        self.host.get_or_init(|| Self::new(self.devices.own()))
    }

    /// What was kept on the host when that was most.
    pub fn host_memory(&self) -> HostMemory {
        self.host.get().map_or_else(HostMemory::default, |host| host.read_trace(HostMemory::of_trace))
    }

    /// What the device answers; another one that answers otherwise runs another program.
    pub fn ask<T: PartialEq>(&self, answer: impl Fn(Device) -> T) -> T {
        self.devices.ask(answer)
    }

    /// What the device answers, and what each of the others does, with their places.
    pub fn ask_each<T>(&self, answer: impl Fn(Device) -> T) -> (T, Vec<(usize, T)>) {
        self.devices.ask_each(answer)
    }

    /// The device at this place among the others runs another program.
    pub fn diverges(&self, at: usize) {
        self.devices.diverges(at);
    }

    /// A name for a size that is another on some of the other devices: see `Allocation::sizes`.
    pub fn name_sizes(&self, own: u64, on_others: &[(usize, u64)]) -> u32 {
        self.devices.name_sizes(own, on_others)
    }

    /// Hands over the sizes on each of the other devices, by their names less one; `None` of those that run another program.
    pub fn take_sizes(&self) -> Vec<Option<Vec<u64>>> {
        self.devices.take_sizes()
    }

    /// `scaled_dot_product_attention` is over the tokens of all these ranks from now on.
    pub fn share_tokens(&self, ring: Option<Ring>) {
        self.ring.set(ring);
    }

    /// Ranks that share the tokens of a row.
    pub fn ring(&self) -> Option<Ring> {
        self.ring.get()
    }

    /// `torch.is_grad_enabled()`
    pub fn is_grad_enabled(&self) -> bool {
        self.grad_enabled.get()
    }

    /// The trace will be replayed so often for one question.
    pub fn serve_replays(&self, replays: u64) {
        self.replays.set(replays.max(1));
    }

    /// How often the trace will be replayed for one question.
    pub fn replays(&self) -> u64 {
        self.replays.get()
    }

    /// Indexing by masks finds the places first (`nonzero_static`), as the reference measurements do.
    pub fn find_places_first(&self, first: bool) {
        self.places_first.set(first);
    }

    /// Whether TorchScript has run a function before, after which it runs operators together that it can compile.
    pub fn has_scripted(&self) -> bool {
        self.scripted.get()
    }

    /// TorchScript runs a function; whether it has before.
    pub fn run_script(&self) -> bool {
        self.scripted.replace(true)
    }

    /// Whether it does.
    pub fn finds_places_first(&self) -> bool {
        self.places_first.get()
    }

    /// Says what attention masks hold, as tensors here have no numbers: some rows end in padding.
    pub fn pad_rows(&self) {
        self.padded_rows.set(true);
    }

    /// Whether attention masks hide something.
    pub fn has_padded_rows(&self) -> bool {
        self.padded_rows.get()
    }

    /// What `run` makes while no row is padded.
    pub fn with_whole_rows<T>(&self, run: impl FnOnce() -> T) -> T {
        let padded = self.padded_rows.replace(false);
        let made = run();
        self.padded_rows.set(padded);
        made
    }

    /// Says what position ids hold: those of several sequences in a row.
    pub fn pack_rows(&self) {
        self.packed_rows.set(true);
    }

    /// Whether a row holds several sequences.
    pub fn has_packed_rows(&self) -> bool {
        self.packed_rows.get()
    }

    /// Says which version of transformers is installed.
    pub fn install_transformers(&self, version: TransformersVersion) {
        self.transformers.set(version);
    }

    /// The installed version of transformers.
    pub fn transformers(&self) -> TransformersVersion {
        self.transformers.get()
    }

    /// Checkpoints are with `use_reentrant=True` from now on.
    pub fn reenter_checkpoints(&self, reenters: bool) {
        self.reenters.set(reenters);
    }

    /// Whether checkpoints are with `use_reentrant=True`.
    pub(super) fn reenters(&self) -> bool {
        self.reenters.get()
    }

    /// The sequence number of the node that is made next.
    pub fn next_sequence(&self) -> u32 {
        self.next_sequence.get()
    }

    /// Keeps the latest node in mind from now on.
    pub fn watch_nodes(&self) {
        self.watches_nodes.set(true);
    }

    /// Whether a backward pass runs.
    pub fn runs_backward(&self) -> bool {
        self.thread.get() == Thread::Autograd
    }

    /// Notes that a module is an `nn.Linear`.
    pub fn note_linear(&self, module: u32) {
        self.linear_modules.borrow_mut().push(module);
    }

    pub fn is_linear(&self, module: u32) -> bool {
        self.linear_modules.borrow().contains(&module)
    }

    /// Notes that a module is an `nn.Embedding`.
    pub fn note_embedding(&self, module: u32) {
        self.embedding_modules.borrow_mut().push(module);
    }

    pub fn is_embedding(&self, module: u32) -> bool {
        self.embedding_modules.borrow().contains(&module)
    }

    /// `torch.nn.functional.linear` is DeepSpeed's from now on.
    pub fn replace_linear(&self) {
        self.linear_is_replaced.set(true);
    }

    /// Runs `hook` with the place in the trace of a module whose output asks for a gradient by itself, when that is there.
    pub fn hook_outputs(&self, hook: impl Fn(u32) + 'static) {
        self.output_hook.replace(Some(Rc::new(hook)));
    }

    /// Whether it is.
    pub fn has_replaced_linear(&self) -> bool {
        self.linear_is_replaced.get()
    }

    /// `torch._C._current_autograd_node()`
    pub(super) fn running_node(&self) -> Option<Rc<dyn Any>> {
        self.running_node.borrow().clone()
    }

    /// `node.register_hook(hook)` on the node that runs.
    pub(super) fn hook_running_node(&self, hook: impl FnOnce() + 'static) {
        self.node_hooks.borrow_mut().push(Box::new(hook));
    }

    /// Runs what was hooked to the node that has run.
    pub(super) fn run_node_hooks(&self) {
        if !self.node_hooks.borrow().is_empty() {
            self.node_hooks.take().into_iter().for_each(|hook| hook());
        }
    }

    /// `Engine::queue_callback`: `callback` runs when the backward pass that runs now is done.
    pub fn queue_callback(&self, callback: impl FnOnce() + 'static) {
        self.callbacks.borrow_mut().push(Box::new(callback));
    }

    pub(super) fn run_callbacks(&self) {
        let callbacks = self.callbacks.take();
        callbacks.into_iter().for_each(|callback| callback());
    }
}
