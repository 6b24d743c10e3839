//! Checkpoints: the functions that the shim runs again, from C++ and perhaps on another thread.

use std::ffi::c_void;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

use super::Torch;
use crate::device::Device;
use crate::error::{ErrorKind, TorchError};

pub(super) type Recompute = extern "C" fn(*mut c_void) -> i32;
pub(super) type Release = extern "C" fn(*mut c_void);
/// What a checkpoint runs again.
pub(crate) type Function = dyn FnMut() -> Result<(), TorchError>;

/// A function, and the thread that it belongs to unless it may be run by any.
struct Checkpointed {
    function: Box<Function>,
    owner: Option<ThreadId>,
}

impl Checkpointed {
    /// Whether this thread may touch it: its own may, and another while its own waits in backward, which has PyTorch run it on the
    /// thread of a device and returns when that thread has let go of it.
    fn is_free(&self) -> bool {
        self.owner.is_none_or(|owner| owner == thread::current().id() || waiting().contains(&owner))
    }
}

/// The threads that wait in backward, each as often as it entered.
static WAITING: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());

fn waiting() -> std::sync::MutexGuard<'static, Vec<ThreadId>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This thread waits in backward until it is dropped.
pub(super) struct Waiting(ThreadId);

impl Waiting {
    pub(super) fn begin() -> Self {
        let own = thread::current().id();
        waiting().push(own);
        Self(own)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut all = waiting();
        if let Some(at) = all.iter().position(|one| *one == self.0) {
            all.swap_remove(at);
        }
    }
}

/// What made a checkpoint's second run fail, until `backward` returns on the thread that asked for it.
static RECOMPUTATION_ERROR: Mutex<Option<TorchError>> = Mutex::new(None);

/// The error that ended a second run, for whoever asked for backward.
pub(super) fn take_error() -> Option<TorchError> {
    RECOMPUTATION_ERROR.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Torch {
    /// From here on saved tensors of this thread are left out; `function` makes them anew.
    /// With `is_own` no other thread runs it, but for this one.
    pub(crate) fn begin_checkpoint(
        &self,
        device: Device,
        function: Box<Function>,
        is_own: bool,
    ) -> Result<(), TorchError> {
        let owner = is_own.then(|| thread::current().id());
        let function: *mut Checkpointed = Box::into_raw(Box::new(Checkpointed { function, owner }));
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
    let checkpointed = unsafe { &mut *function.cast::<Checkpointed>() };
    let outcome = if checkpointed.is_free() {
        // A panic must not reach C++.
        let run = panic::catch_unwind(AssertUnwindSafe(&mut checkpointed.function));
        run.unwrap_or_else(|panic| Err(error_of(panic)))
    } else {
        Err(TorchError::of_program("backward must be asked for by the thread that ran the checkpoint"))
    };
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
    let checkpointed = unsafe { Box::from_raw(function.cast::<Checkpointed>()) };
    if checkpointed.is_free() {
        drop(checkpointed);
    } else {
        // Its counts of references are its own thread's: what it holds is never given back.
        std::mem::forget(checkpointed);
    }
}
