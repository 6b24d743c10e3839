//! [`Scope`]: state of the process that holds until a scope ends, as Python's `with` has it.

use std::cell::Cell;

use super::context::{Context, Thread};
use crate::dtype::DType;
use tonnage_alloc::trace::Category;

/// Restores a piece of the context's state when dropped.
pub struct Scope<'a, T: Copy> {
    cell: &'a Cell<T>,
    previous: T,
}

impl<T: Copy> Drop for Scope<'_, T> {
    fn drop(&mut self) {
        self.cell.set(self.previous);
    }
}

fn enter<T: Copy>(cell: &Cell<T>, value: T) -> Scope<'_, T> {
    Scope { cell, previous: cell.replace(value) }
}

impl Context {
    /// Enters a registered module until the scope ends.
    pub fn enter_module(&self, module: u32) -> Scope<'_, u32> {
        enter(&self.module, module)
    }

    /// What is allocated until the scope ends belongs to this node of the tape.
    pub fn enter_node(&self, node: Option<&'static str>) -> Scope<'_, Option<&'static str>> {
        enter(&self.node, node)
    }

    /// Allocations until the scope ends get this category, unless an op says otherwise.
    pub fn enter_category(&self, category: Category) -> Scope<'_, Option<Category>> {
        enter(&self.category, Some(category))
    }

    /// `torch.cuda.stream(...)` until the scope ends: memory comes from that stream's pool.
    pub fn enter_stream(&self, stream: u8) -> Scope<'_, u8> {
        enter(&self.stream, stream)
    }

    /// `torch.cuda.device(...)` until the scope ends: what another device than the simulated one holds is not recorded.
    pub fn enter_device(&self, is_here: bool) -> Scope<'_, bool> {
        enter(&self.is_here, is_here)
    }

    /// `torch.no_grad()` (or its opposite) until the scope ends.
    pub fn set_grad_enabled(&self, enabled: bool) -> Scope<'_, bool> {
        enter(&self.grad_enabled, enabled)
    }

    pub fn enter_thread(&self, thread: Thread) -> Scope<'_, Thread> {
        enter(&self.thread, thread)
    }

    pub(super) fn replace_autocast(&self, dtype: Option<DType>) -> Scope<'_, Option<DType>> {
        enter(&self.autocast, dtype)
    }

    /// Says of the autocast that is on whether it is another thread's, until the scope ends.
    pub(super) fn lend_autocast(&self, is_lent: bool) -> Scope<'_, bool> {
        enter(&self.autocast_is_lent, is_lent)
    }
}
