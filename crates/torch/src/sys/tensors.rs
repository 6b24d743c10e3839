//! Tensors by their handles, their gradients, and the scopes of a thread.

use super::checkpoints::Waiting;
use smallvec::SmallVec;

use super::{Handle, Torch};
use crate::device::Device;
use crate::error::TorchError;

/// `AutocastState` of shim/autograd.cpp.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AutocastState {
    pub(crate) enabled: i32,
    pub(crate) scalar_type: i32,
    pub(crate) caches: i32,
}

impl Torch {
    pub(crate) fn free(&self, handle: Handle) {
        // SAFETY: its owner gives it up.
        unsafe { (self.functions.tonnage_free)(handle.0) }
    }

    pub(crate) fn clone_handle(&self, handle: Handle) -> Handle {
        // SAFETY: a live handle.
        Handle(unsafe { (self.functions.tonnage_clone)(handle.0) })
    }

    pub(crate) fn sizes(&self, handle: Handle) -> SmallVec<[i64; 8]> {
        let mut sizes = SmallVec::from_elem(0, 8);
        // SAFETY: a live handle; no more than the given room is written.
        let dims = unsafe { (self.functions.tonnage_sizes)(handle.0, sizes.as_mut_ptr(), sizes.len() as i64) };
        let dims = usize::try_from(dims).unwrap_or_default();
        if dims > sizes.len() {
            sizes.resize(dims, 0);
            // SAFETY: as above, with room for all.
            unsafe { (self.functions.tonnage_sizes)(handle.0, sizes.as_mut_ptr(), sizes.len() as i64) };
        }
        sizes.truncate(dims);
        sizes
    }

    pub(crate) fn scalar_type(&self, handle: Handle) -> i32 {
        // SAFETY: a live handle.
        unsafe { (self.functions.tonnage_scalar_type)(handle.0) }
    }

    pub(crate) fn device(&self, handle: Handle) -> (i32, i32) {
        let (mut kind, mut index) = (0, 0);
        // SAFETY: a live handle; both numbers are this function's own.
        unsafe { (self.functions.tonnage_device)(handle.0, &raw mut kind, &raw mut index) };
        (kind, index)
    }

    pub(crate) fn identity(&self, handle: Handle) -> i64 {
        // SAFETY: a live handle.
        unsafe { (self.functions.tonnage_identity)(handle.0) }
    }

    /// `bytes` holds as many elements as `sizes` say.
    pub(crate) fn copy_from_host(&self, bytes: &[u8], sizes: &[i64], scalar_type: i32) -> Result<Handle, TorchError> {
        // SAFETY: the caller has checked that `bytes` are all elements; they are copied before the call returns.
        let made = unsafe {
            (self.functions.tonnage_from_host)(bytes.as_ptr().cast(), sizes.as_ptr(), sizes.len() as i64, scalar_type)
        };
        self.handle(made)
    }

    pub(crate) fn to_host(&self, handle: Handle, bytes: &mut [u8]) -> Result<(), TorchError> {
        // SAFETY: a live handle; the shim checks the length before it writes.
        self.check(unsafe { (self.functions.tonnage_to_host)(handle.0, bytes.as_mut_ptr().cast(), bytes.len() as i64) })
    }

    pub(crate) fn overwrite(&self, handle: Handle, bytes: &[u8]) -> Result<(), TorchError> {
        // SAFETY: a live handle; the shim checks the length before it reads.
        self.check(unsafe { (self.functions.tonnage_overwrite)(handle.0, bytes.as_ptr().cast(), bytes.len() as i64) })
    }

    pub(crate) fn set_requires_grad(&self, handle: Handle, on: bool) -> Result<(), TorchError> {
        // SAFETY: a live handle.
        self.check(unsafe { (self.functions.tonnage_set_requires_grad)(handle.0, i32::from(on)) })
    }

    pub(crate) fn requires_grad(&self, handle: Handle) -> bool {
        // SAFETY: a live handle.
        unsafe { (self.functions.tonnage_requires_grad)(handle.0) != 0 }
    }

    pub(crate) fn grad(&self, handle: Handle) -> Option<Handle> {
        // SAFETY: a live handle.
        let grad = unsafe { (self.functions.tonnage_grad)(handle.0) };
        (grad != 0).then_some(Handle(grad))
    }

    pub(crate) fn set_grad(&self, handle: Handle, gradient: Option<Handle>) -> Result<(), TorchError> {
        // SAFETY: live handles, or 0 for none.
        self.check(unsafe { (self.functions.tonnage_set_grad)(handle.0, gradient.map_or(0, |gradient| gradient.0)) })
    }

    pub(crate) fn backward_from(
        &self,
        root: Handle,
        gradient: Option<Handle>,
        keep_graph: bool,
    ) -> Result<(), TorchError> {
        let gradient = gradient.map_or(0, |gradient| gradient.0);
        let _waiting = Waiting::begin();
        // SAFETY: live handles, or 0 for none.
        self.check(unsafe {
            (self.functions.tonnage_backward)(&raw const root.0, &raw const gradient, 1, i32::from(keep_graph))
        })
    }

    pub(crate) fn grad_mode(&self) -> bool {
        // SAFETY: reads a flag of this thread.
        unsafe { (self.functions.tonnage_grad_mode)() != 0 }
    }

    pub(crate) fn set_grad_mode(&self, on: bool) {
        // SAFETY: sets a flag of this thread.
        unsafe { (self.functions.tonnage_set_grad_mode)(i32::from(on)) }
    }

    pub(crate) fn enter_autocast(&self, device: Device, wanted: AutocastState) -> Result<AutocastState, TorchError> {
        let mut before = AutocastState::default();
        // SAFETY: both states are this function's own.
        self.check(unsafe {
            (self.functions.tonnage_enter_autocast)(device.kind(), &raw const wanted, &raw mut before)
        })?;
        Ok(before)
    }

    pub(crate) fn leave_autocast(&self, device: Device, before: AutocastState) {
        // SAFETY: the state is this function's own.
        unsafe { (self.functions.tonnage_leave_autocast)(device.kind(), &raw const before) }
    }
}
