//! Driver functions by name: `cudaGetDriverEntryPoint*` here and `cuGetProcAddress` in `driver`. A name stands for the
//! newest version of its function that we have.
#![allow(non_snake_case)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use crate::boundary::{Slot, put_if_wanted, report_code};
use crate::error::{Error, Result};
use crate::sys;

/// Suffixes of versioned functions, newest first, before the plain name.
const VERSIONS: &[&str] = &["_v3", "_v2", ""];
/// `cudaDriverEntryPointSuccess` and `cudaDriverEntryPointSymbolNotFound`.
const FOUND: c_int = 0;
const SYMBOL_NOT_FOUND: c_int = 1;

/// The address of the driver function with this name.
pub fn find_entry(name: &CStr) -> Option<usize> {
    let name = name.to_str().ok().filter(|name| name.starts_with("cu") && !name.starts_with("cuda"))?;
    VERSIONS.iter().find_map(|version| {
        let symbol = CString::new(format!("{name}{version}")).ok()?;
        // SAFETY: a lookup by name; being preloaded, we are the first library that is asked.
        let address = unsafe { sys::dlsym(sys::RTLD_DEFAULT, symbol.as_ptr()) } as usize;
        (address != 0).then_some(address)
    })
}

/// # Safety
/// `name` is null or a string, the places are null or valid.
unsafe fn entry_point(name: *const c_char, function: *mut *mut c_void, status: *mut c_int) -> Result {
    // SAFETY: the caller's promise.
    let place = unsafe { Slot::new(function) }?;
    if name.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: not null, so a string by the caller's promise.
    let address = find_entry(unsafe { CStr::from_ptr(name) });
    place.put(address.unwrap_or(0) as *mut c_void);
    // SAFETY: the caller's promise.
    unsafe { put_if_wanted(status, if address.is_some() { FOUND } else { SYMBOL_NOT_FOUND }) };
    if address.is_some() || !status.is_null() { Ok(()) } else { Err(Error::NOT_FOUND) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDriverEntryPoint(
    name: *const c_char,
    function: *mut *mut c_void,
    _flags: u64,
    status: *mut c_int,
) -> c_int {
    // SAFETY: the API's contract.
    report_code(unsafe { entry_point(name, function, status) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDriverEntryPointByVersion(
    name: *const c_char,
    function: *mut *mut c_void,
    _version: c_uint,
    _flags: u64,
    status: *mut c_int,
) -> c_int {
    // SAFETY: the API's contract.
    report_code(unsafe { entry_point(name, function, status) })
}
