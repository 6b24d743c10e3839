//! User objects: a destructor that runs when nothing refers to its object any more. What a graph holds lives as long as the
//! process, because executables may outlive graphs and are not followed.
#![allow(non_snake_case)]

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::boundary::{Slot, report_code};
use crate::error::{Error, Result};
use crate::state;

type Destructor = extern "C" fn(*mut c_void);

/// An object of the caller's: its data is only handed back to its destructor.
struct UserObject {
    data: usize,
    destroy: Destructor,
    references: u64,
}

static OBJECTS: Mutex<BTreeMap<usize, UserObject>> = Mutex::new(BTreeMap::new());
/// `cudaGraphUserObjectMove`: the graph takes over the caller's references.
const MOVE: c_uint = 1;

fn lock_objects() -> MutexGuard<'static, BTreeMap<usize, UserObject>> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaUserObjectCreate(
    object: *mut usize,
    data: *mut c_void,
    destroy: Option<Destructor>,
    references: c_uint,
    _flags: c_uint,
) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    let place = unsafe { Slot::new(object) };
    report_code(place.and_then(|place| {
        let destroy = destroy.filter(|_| references > 0).ok_or(Error::INVALID_VALUE)?;
        let handle = state::lock_streams().handle();
        lock_objects().insert(handle, UserObject { data: data as usize, destroy, references: references.into() });
        place.give(handle)
    }))
}

fn change_count(object: usize, change: impl FnOnce(u64) -> Option<u64>) -> Result {
    let mut all = lock_objects();
    let found = all.get_mut(&object).ok_or(Error::INVALID_VALUE)?;
    found.references = change(found.references).ok_or(Error::INVALID_VALUE)?;
    let unused = if found.references == 0 { all.remove(&object) } else { None };
    // The destructor is the caller's code, which may come back here.
    drop(all);
    if let Some(unused) = unused {
        (unused.destroy)(unused.data as *mut c_void);
    }
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cudaUserObjectRetain(object: usize, count: c_uint) -> c_int {
    report_code(change_count(object, |references| references.checked_add(count.into())))
}

#[unsafe(no_mangle)]
extern "C" fn cudaUserObjectRelease(object: usize, count: c_uint) -> c_int {
    report_code(change_count(object, |references| references.checked_sub(count.into())))
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphRetainUserObject(graph: usize, object: usize, count: c_uint, flags: c_uint) -> c_int {
    let taken = if flags & MOVE != 0 { 0 } else { u64::from(count) };
    let known = state::lock_streams().nodes_of(graph);
    report_code(known.and_then(|_| change_count(object, |references| references.checked_add(taken))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static DESTROYED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn destroy(_data: *mut c_void) {
        DESTROYED.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn the_last_release_destroys_once() {
        let mut object = 0;
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(cudaUserObjectCreate(std::ptr::null_mut(), std::ptr::null_mut(), Some(destroy), 1, 0), 1);
            assert_eq!(cudaUserObjectCreate(&raw mut object, std::ptr::null_mut(), None, 1, 0), 1);
            assert_eq!(cudaUserObjectCreate(&raw mut object, std::ptr::null_mut(), Some(destroy), 2, 0), 0);
        }
        assert_eq!((cudaUserObjectRetain(object, 1), cudaUserObjectRelease(object, 9)), (0, 1));
        assert_eq!(cudaGraphRetainUserObject(7, object, 1, 0), 1);
        assert_eq!((cudaUserObjectRelease(object, 3), DESTROYED.load(Ordering::Relaxed)), (0, 1));
        assert_eq!(cudaUserObjectRelease(object, 1), 1);
    }
}
