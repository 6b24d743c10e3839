//! cuDNN's graph API: descriptors are built and finalized, a heuristic offers one engine, plans need no workspace, and
//! executing does nothing.
#![allow(non_snake_case)]

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{BAD_PARAM, NULL_POINTER};
use crate::boundary::{Slot, put_if_wanted};
use crate::state;

/// `cudnnBackendAttributeName_t`, those whose values PyTorch's frontend acts on.
const HEURISTIC_RESULTS: c_int = 202;
const CONFIG_ENGINE: c_int = 300;
const CONFIG_WORKSPACE: c_int = 303;
const PLAN_WORKSPACE: c_int = 402;
const ENGINE_INDEX: c_int = 1301;
/// `CUDNN_TYPE_INT64`.
const INT64: c_int = 3;

/// Descriptors with their kinds.
static DESCRIPTORS: Mutex<BTreeMap<usize, c_int>> = Mutex::new(BTreeMap::new());

fn lock_descriptors() -> MutexGuard<'static, BTreeMap<usize, c_int>> {
    DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check_descriptor(descriptor: usize) -> c_int {
    if lock_descriptors().contains_key(&descriptor) { 0 } else { BAD_PARAM }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendCreateDescriptor(kind: c_int, descriptor: *mut usize) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    unsafe { Slot::new(descriptor) }.map_or(NULL_POINTER, |place| {
        let handle = state::lock_streams().handle();
        lock_descriptors().insert(handle, kind);
        place.put(handle);
        0
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendDestroyDescriptor(descriptor: usize) -> c_int {
    lock_descriptors().remove(&descriptor).map_or(BAD_PARAM, |_| 0)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendFinalize(descriptor: usize) -> c_int {
    check_descriptor(descriptor)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendSetAttribute(
    descriptor: usize,
    _name: c_int,
    _kind: c_int,
    count: i64,
    values: *const c_void,
) -> c_int {
    if count > 0 && values.is_null() { NULL_POINTER } else { check_descriptor(descriptor) }
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendExecute(_handle: usize, plan: usize, variants: usize) -> c_int {
    check_descriptor(plan).max(check_descriptor(variants))
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendPopulateCudaGraph(_handle: usize, plan: usize, variants: usize, _graph: usize) -> c_int {
    check_descriptor(plan).max(check_descriptor(variants))
}

/// One element is offered where an engine, its configuration or a size is asked for; of everything else there is none.
/// Elements that are descriptors were made by the caller, and stay as they are.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendGetAttribute(
    descriptor: usize,
    name: c_int,
    kind: c_int,
    requested: i64,
    count: *mut i64,
    values: *mut c_void,
) -> c_int {
    if check_descriptor(descriptor) != 0 {
        return BAD_PARAM;
    }
    let offered = match name {
        HEURISTIC_RESULTS | CONFIG_ENGINE => 1,
        CONFIG_WORKSPACE | PLAN_WORKSPACE | ENGINE_INDEX if kind == INT64 => {
            if requested > 0 {
                // SAFETY: a place for at least one number by the API's contract.
                unsafe { put_if_wanted(values.cast::<i64>(), 0) };
            }
            1
        }
        _ => 0,
    };
    // SAFETY: a place for the number of elements, or null, by the API's contract.
    unsafe { put_if_wanted(count, offered) };
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null, null_mut};

    #[test]
    fn a_plan_needs_no_workspace_and_strangers_are_refused() {
        let (mut plan, mut count, mut bytes) = (0, 0, 77_i64);
        let place = (&raw mut bytes).cast();
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(cudnnBackendCreateDescriptor(5, null_mut()), NULL_POINTER);
            assert_eq!(cudnnBackendCreateDescriptor(5, &raw mut plan), 0);
            assert_eq!(cudnnBackendGetAttribute(3, PLAN_WORKSPACE, INT64, 1, &raw mut count, place), BAD_PARAM);
            assert_eq!(cudnnBackendGetAttribute(plan, PLAN_WORKSPACE, INT64, 1, &raw mut count, place), 0);
            assert_eq!((count, bytes), (1, 0));
            assert_eq!(cudnnBackendGetAttribute(plan, 1303, 11, 50, &raw mut count, null_mut()), 0);
            assert_eq!(count, 0);
        }
        assert_eq!(cudnnBackendSetAttribute(plan, 401, 15, 1, null()), NULL_POINTER);
        assert_eq!((cudnnBackendExecute(0, plan, 4), cudnnBackendExecute(0, plan, plan)), (BAD_PARAM, 0));
        assert_eq!((cudnnBackendDestroyDescriptor(plan), cudnnBackendFinalize(plan)), (0, BAD_PARAM));
    }
}
