//! The C boundary: pointers that callers hand in become values or documented errors here, and results become codes.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::NonNull;

use crate::error::{Error, Result};

thread_local! {
    /// The runtime's error of this thread, until `cudaGetLastError` takes it.
    static LAST_ERROR: Cell<c_int> = const { Cell::new(0) };
}

/// A caller's place for a result: not null and aligned.
pub struct Slot<T>(NonNull<T>);

impl<T> Slot<T> {
    /// # Safety
    /// If not null and aligned, `place` has to be valid for writing a `T` while the slot lives: what the API's
    /// documentation asks of its caller.
    pub unsafe fn new(place: *mut T) -> Result<Self> {
        let place = NonNull::new(place).ok_or(Error::INVALID_VALUE)?;
        if place.is_aligned() { Ok(Self(place)) } else { Err(Error::INVALID_VALUE) }
    }

    /// Writes what may still fail until here, and is done.
    #[allow(clippy::unnecessary_wraps, reason = "it ends functions that fail otherwise")]
    pub fn give(self, value: T) -> Result {
        self.put(value);
        Ok(())
    }

    pub fn put(self, value: T) {
        // SAFETY: not null and aligned by construction, valid for writes by the promise made to `new`.
        unsafe { self.0.write(value) }
    }
}

/// Writes where the caller wants the value; null means it does not.
///
/// # Safety
/// As for [`Slot::new`].
pub unsafe fn put_if_wanted<T>(place: *mut T, value: T) {
    // SAFETY: the caller's promise is passed on.
    if let Ok(slot) = unsafe { Slot::new(place) } {
        slot.put(value);
    }
}

/// Reads what the caller points at.
///
/// # Safety
/// If not null and aligned, `place` has to be valid for reading a `T`.
pub unsafe fn read<T: Copy>(place: *const T) -> Result<T> {
    if place.is_null() || !place.is_aligned() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: not null, aligned, and valid for reads by the caller's promise.
    Ok(unsafe { place.read() })
}

/// A driver function's answer.
pub fn code_of(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => error.0,
    }
}

/// A runtime function's answer; errors are remembered for `cudaGetLastError`.
pub fn report_code(result: Result) -> c_int {
    if let Err(error) = result {
        LAST_ERROR.set(error.0);
    }
    code_of(result)
}

pub fn last_error() -> c_int {
    LAST_ERROR.get()
}

pub fn take_last_error() -> c_int {
    LAST_ERROR.replace(0)
}
