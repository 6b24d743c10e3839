//! What a model's tensors share: the library, the device, what of PyTorch's state holds until a scope ends, and which module runs.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;
use std::thread;

use tonnage_torch::{AutocastScope, Device, GradScope, Torch, TorchError};

use super::stop::{or_stop, stop};
use crate::dtype::DType;
use crate::job::TransformersVersion;
use crate::trace::{Category, PhaseKind};

/// Where a model's tensors lie, and what its modules are called.
pub struct Context {
    pub(crate) torch: &'static Torch,
    pub(crate) device: Device,
    padded_rows: Cell<bool>,
    packed_rows: Cell<bool>,
    /// Paths by their number; the first is the model's own.
    modules: RefCell<Vec<String>>,
    module: Cell<u32>,
    /// The innermost module that an error went through.
    failed_in: Cell<Option<u32>>,
}

/// State that holds until this is dropped.
#[must_use = "the scope ends when it is dropped"]
pub(crate) struct Scope<'a, T> {
    #[expect(dead_code, reason = "its end puts the state back")]
    state: State<'a>,
    value: PhantomData<T>,
}

#[expect(dead_code, reason = "what ends with the scope")]
enum State<'a> {
    Nothing,
    Module(ModuleScope<'a>),
    Grad(GradScope<'a>),
    Autocast(AutocastScope<'a>),
}

struct ModuleScope<'a> {
    context: &'a Context,
    before: u32,
}

impl Drop for ModuleScope<'_> {
    fn drop(&mut self) {
        if thread::panicking() && self.context.failed_in.get().is_none() {
            self.context.failed_in.set(Some(self.context.module.get()));
        }
        self.context.module.set(self.before);
    }
}

impl Context {
    pub(crate) fn new(torch: &'static Torch, device: Device) -> Rc<Self> {
        Rc::new(Self {
            torch,
            device,
            padded_rows: Cell::new(false),
            packed_rows: Cell::new(false),
            modules: RefCell::default(),
            module: Cell::new(0),
            failed_in: Cell::new(None),
        })
    }

    /// What the rows of the next pass are: padded by their mask, several sequences by their positions.
    pub(crate) fn take_rows_as(&self, padded: bool, packed: bool) {
        self.padded_rows.set(padded);
        self.packed_rows.set(packed);
    }

    /// Whether attention masks hide something.
    pub(crate) fn has_padded_rows(&self) -> bool {
        self.padded_rows.get()
    }

    /// Whether a row holds several sequences.
    pub(crate) fn has_packed_rows(&self) -> bool {
        self.packed_rows.get()
    }

    /// Training does what the newest version does.
    #[expect(clippy::unused_self, reason = "the simulation asks its process")]
    pub(crate) fn transformers(&self) -> TransformersVersion {
        TransformersVersion::default()
    }

    pub(crate) fn register_module(&self, path: String) -> u32 {
        let mut modules = self.modules.borrow_mut();
        modules.push(path);
        u32::try_from(modules.len() - 1).unwrap_or(u32::MAX)
    }

    fn scope<T>(state: State<'_>) -> Scope<'_, T> {
        Scope { state, value: PhantomData }
    }

    pub(crate) fn enter_module(&self, module: u32) -> Scope<'_, u32> {
        let before = self.module.replace(module);
        Self::scope(State::Module(ModuleScope { context: self, before }))
    }

    /// From here on nothing has failed.
    pub(crate) fn forget_failure(&self) {
        self.failed_in.set(None);
    }

    /// The path of the module in which an error arose.
    pub(crate) fn failed_in(&self) -> Option<String> {
        self.modules.borrow().get(self.failed_in.get()? as usize).cloned()
    }

    #[expect(clippy::unused_self, reason = "the simulation notes it")]
    pub(crate) fn enter_category(&self, _category: Category) -> Scope<'_, Option<Category>> {
        Self::scope(State::Nothing)
    }

    #[expect(clippy::unused_self, reason = "the simulation notes it")]
    pub(crate) fn phase(&self, _kind: PhaseKind) {}

    /// `torch.set_grad_enabled(...)` until the scope ends.
    pub(crate) fn set_grad_enabled(&self, enabled: bool) -> Scope<'_, bool> {
        Self::scope(State::Grad(self.torch.with_grad(enabled)))
    }

    /// `torch.autocast(device, enabled=False)` until the scope ends.
    pub(crate) fn disable_autocast(&self) -> Scope<'_, Option<DType>> {
        Self::scope(State::Autocast(or_stop(self.torch.autocast(self.device, None))))
    }

    /// What only kernels of other packages ask; they are refused before anything runs.
    #[expect(clippy::unused_self, reason = "the simulation knows it")]
    pub(crate) fn autocast_dtype(&self) -> Option<DType> {
        None
    }

    /// Ends the pass: this does nobody here.
    #[expect(clippy::unused_self, reason = "the simulation notes it")]
    pub(crate) fn fail_unsimulated(&self, _keys: &[&'static str], problem: impl FnOnce() -> String) {
        stop(TorchError::of_program(problem()));
    }
}
