//! Checkpoints: the functions that the shim runs again, from C++ and perhaps on another thread.

use std::ffi::c_void;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, PoisonError};

use super::Torch;
use crate::device::Device;
use crate::error::{ErrorKind, TorchError};

pub(super) type Recompute = extern "C" fn(*mut c_void) -> i32;
pub(super) type Release = extern "C" fn(*mut c_void);
/// What a checkpoint runs again.
pub(crate) type Function = dyn FnMut() -> Result<(), TorchError> + Send;

/// What made a checkpoint's second run fail, until `backward` returns on the thread that asked for it.
static RECOMPUTATION_ERROR: Mutex<Option<TorchError>> = Mutex::new(None);

/// The error that ended a second run, for whoever asked for backward.
pub(super) fn take_error() -> Option<TorchError> {
    RECOMPUTATION_ERROR.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Torch {
    /// From here on saved tensors of this thread are left out; `function` makes them anew.
    pub(crate) fn begin_checkpoint(&self, device: Device, function: Box<Function>) -> Result<(), TorchError> {
        // Twice boxed: a pointer to a trait object does not fit into a C pointer.
        let function: *mut Box<Function> = Box::into_raw(Box::new(function));
        // SAFETY: the shim calls `release` with this pointer exactly once, in any case, and `recompute` only before that.
        self.check(unsafe {
            (self.functions.tonnage_begin_checkpoint)(
                recompute,
                release,
                function.cast(),
                device.kind(),
                device.index(),
            )
        })
    }

    pub(crate) fn end_checkpoint(&self) {
        // SAFETY: changes this thread's own state.
        unsafe { (self.functions.tonnage_end_checkpoint)() }
    }
}

extern "C" fn recompute(function: *mut c_void) -> i32 {
    // SAFETY: the pointer is the one that `begin_checkpoint` made, and is not released yet; PyTorch runs it on one thread.
    let function = unsafe { &mut *function.cast::<Box<Function>>() };
    // A panic must not reach C++.
    let outcome = panic::catch_unwind(AssertUnwindSafe(function)).unwrap_or_else(|panic| Err(error_of(panic)));
    match outcome {
        Ok(()) => 0,
        Err(error) if error.kind == ErrorKind::Stopped => 0,
        Err(error) => {
            *RECOMPUTATION_ERROR.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            -1
        }
    }
}

/// A program may unwind with a [`TorchError`] in place of returning it (`std::panic::resume_unwind`).
fn error_of(panic: Box<dyn std::any::Any + Send>) -> TorchError {
    match panic.downcast::<TorchError>() {
        Ok(error) => *error,
        Err(other) => {
            let text = other.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| other.downcast_ref::<String>().cloned());
            TorchError::new(ErrorKind::Operator, text.unwrap_or_else(|| "a checkpointed function panicked".to_owned()))
        }
    }
}

extern "C" fn release(function: *mut c_void) {
    // SAFETY: the shim releases each function once. What it holds are tensors, whose drop does not panic.
    drop(unsafe { Box::from_raw(function.cast::<Box<Function>>()) });
}
