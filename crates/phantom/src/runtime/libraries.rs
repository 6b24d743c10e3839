//! Kernels in libraries that are loaded at run time (`cudaLibrary*`): images are taken and not looked into, so they have no
//! variables.
#![allow(non_snake_case)]

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::boundary::{Slot, report_code};
use crate::error::{Error, Result};
use crate::state;

/// # Safety
/// `place` is null or a place for a handle.
unsafe fn new_handle(place: *mut usize, source: *const c_void) -> Result {
    // SAFETY: the caller's promise.
    let place = unsafe { Slot::new(place) }?;
    if source.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    place.give(state::lock_streams().handle())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaLibraryLoadData(library: *mut usize, image: *const c_void) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    report_code(unsafe { new_handle(library, image) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaLibraryLoadFromFile(library: *mut usize, path: *const c_char) -> c_int {
    // SAFETY: as above.
    report_code(unsafe { new_handle(library, path.cast()) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaLibraryGetKernel(kernel: *mut usize, library: usize, name: *const c_char) -> c_int {
    let made = if library == 0 {
        Err(Error::INVALID_HANDLE)
    } else {
        // SAFETY: as above.
        unsafe { new_handle(kernel, name.cast()) }
    };
    report_code(made)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaLibraryGetKernelCount(count: *mut c_uint, _library: usize) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    report_code(unsafe { Slot::new(count) }.and_then(|place| place.give(0)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaLibraryUnload(library: usize) -> c_int {
    report_code(if library == 0 { Err(Error::INVALID_HANDLE) } else { Ok(()) })
}

#[unsafe(no_mangle)]
extern "C" fn cudaKernelSetAttributeForDevice(kernel: usize, _attribute: c_int, _value: c_int, device: c_int) -> c_int {
    let known = state::device_at(device).map(drop);
    report_code(known.and(if kernel == 0 { Err(Error::INVALID_HANDLE) } else { Ok(()) }))
}

/// Functions that look for what an image has and find nothing.
macro_rules! not_found {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            report_code(Err(Error::NOT_FOUND))
        }
    )*};
}

not_found! { cudaLibraryGetGlobal cudaLibraryGetManaged cudaLibraryGetUnifiedFunction }

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null, null_mut};

    #[test]
    fn hostile_arguments_give_documented_errors() {
        let (mut library, mut kernel, image) = (0, 0, [0_u8; 4]);
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(cudaLibraryLoadData(null_mut(), image.as_ptr().cast()), 1);
            assert_eq!(cudaLibraryLoadData(&raw mut library, null()), 1);
            assert_eq!(cudaLibraryLoadData(&raw mut library, image.as_ptr().cast()), 0);
            assert_eq!(cudaLibraryGetKernel(&raw mut kernel, 0, c"f".as_ptr()), 400);
            assert_eq!(cudaLibraryGetKernel(&raw mut kernel, library, null()), 1);
            assert_eq!(cudaLibraryGetKernel(&raw mut kernel, library, c"f".as_ptr()), 0);
            assert_eq!(cudaLibraryGetKernelCount(null_mut(), library), 1);
        }
        assert_eq!((cudaLibraryUnload(0), cudaLibraryGetGlobal()), (400, 500));
        assert_eq!(
            (cudaKernelSetAttributeForDevice(kernel, 8, 1, 9), cudaKernelSetAttributeForDevice(0, 8, 1, 0)),
            (101, 400)
        );
    }
}
