//! cuBLAS: handles with their settings; products compute nothing. The real library takes memory of the device for itself
//! when a handle is made (kernels and a default workspace, of a size that NVIDIA does not state): that is not counted.
//! PyTorch's own workspace comes from its allocator and is.
#![allow(non_snake_case)]

mod compute;
mod lt;

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::boundary::Slot;
use crate::state;

/// `cublasStatus_t`.
const NOT_INITIALIZED: c_int = 1;
const INVALID_VALUE: c_int = 7;

/// What was set on a handle and can be asked for.
#[derive(Clone, Copy, Default)]
struct Settings {
    stream: usize,
    math_mode: c_int,
    pointer_mode: c_int,
    atomics_mode: c_int,
    multiprocessors: c_int,
}

static HANDLES: Mutex<BTreeMap<usize, Settings>> = Mutex::new(BTreeMap::new());

fn lock_handles() -> MutexGuard<'static, BTreeMap<usize, Settings>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn change_settings(handle: usize, change: impl FnOnce(&mut Settings)) -> c_int {
    lock_handles().get_mut(&handle).map_or(NOT_INITIALIZED, |settings| {
        change(settings);
        0
    })
}

/// # Safety
/// `place` is null or a place for the value.
unsafe fn ask_settings<T>(handle: usize, place: *mut T, value: impl FnOnce(&Settings) -> T) -> c_int {
    let Some(settings) = lock_handles().get(&handle).copied() else { return NOT_INITIALIZED };
    // SAFETY: the caller's promise.
    match unsafe { Slot::new(place) } {
        Ok(place) => {
            place.put(value(&settings));
            0
        }
        Err(_) => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasCreate_v2(handle: *mut usize) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    let Ok(place) = (unsafe { Slot::new(handle) }) else { return INVALID_VALUE };
    let entered = state::current_device().and_then(|device| state::lock_memory().accounts.enter(device));
    if entered.is_err() {
        return NOT_INITIALIZED;
    }
    let handle = state::lock_streams().handle();
    lock_handles().insert(handle, Settings::default());
    place.put(handle);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cublasDestroy_v2(handle: usize) -> c_int {
    lock_handles().remove(&handle).map_or(NOT_INITIALIZED, |_| 0)
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetStream_v2(handle: usize, stream: usize) -> c_int {
    change_settings(handle, |settings| settings.stream = stream)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetStream_v2(handle: usize, stream: *mut usize) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    unsafe { ask_settings(handle, stream, |settings| settings.stream) }
}

/// The workspace is the caller's memory: nothing to count.
#[unsafe(no_mangle)]
extern "C" fn cublasSetWorkspace_v2(handle: usize, _workspace: usize, _bytes: usize) -> c_int {
    change_settings(handle, |_| ())
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetMathMode(handle: usize, mode: c_int) -> c_int {
    change_settings(handle, |settings| settings.math_mode = mode)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetMathMode(handle: usize, mode: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { ask_settings(handle, mode, |settings| settings.math_mode) }
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetPointerMode_v2(handle: usize, mode: c_int) -> c_int {
    change_settings(handle, |settings| settings.pointer_mode = mode)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetPointerMode_v2(handle: usize, mode: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { ask_settings(handle, mode, |settings| settings.pointer_mode) }
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetAtomicsMode(handle: usize, mode: c_int) -> c_int {
    change_settings(handle, |settings| settings.atomics_mode = mode)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetAtomicsMode(handle: usize, mode: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { ask_settings(handle, mode, |settings| settings.atomics_mode) }
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetSmCountTarget(handle: usize, count: c_int) -> c_int {
    change_settings(handle, |settings| settings.multiprocessors = count)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetSmCountTarget(handle: usize, count: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { ask_settings(handle, count, |settings| settings.multiprocessors) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    #[test]
    fn handles_keep_settings_and_strangers_are_refused() {
        let (mut handle, mut mode) = (0, 0);
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(cublasCreate_v2(null_mut()), INVALID_VALUE);
            assert_eq!(cublasCreate_v2(&raw mut handle), 0);
            assert_eq!((cublasSetMathMode(handle, 3), cublasGetMathMode(handle, &raw mut mode), mode), (0, 0, 3));
            assert_eq!(cublasGetMathMode(handle, null_mut()), INVALID_VALUE);
            assert_eq!(cublasGetMathMode(handle + 1, &raw mut mode), NOT_INITIALIZED);
        }
        assert_eq!((cublasDestroy_v2(handle), cublasDestroy_v2(handle)), (0, NOT_INITIALIZED));
        assert_eq!(cublasSetWorkspace_v2(7, 0, 0), NOT_INITIALIZED);
    }
}
