//! Versions: of the runtime that the program brought, and of the driver that it would need.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_int};
use std::mem::transmute;
use std::sync::OnceLock;

use crate::boundary::{Slot, report_code};
use crate::sys;

type VersionFunction = unsafe extern "C" fn(*mut c_int) -> c_int;

/// What is assumed where the program brought no runtime.
const DEFAULT_VERSION: c_int = 13_000;
/// Runtimes that a program may have loaded, newest first.
const RUNTIMES: &[&CStr] = &[c"libcudart.so.13", c"libcudart.so.12"];

/// The version of the runtime library in whose stead we answer: structures and signatures follow it.
pub fn runtime_version() -> c_int {
    static VERSION: OnceLock<c_int> = OnceLock::new();
    *VERSION.get_or_init(|| next_version().or_else(loaded_version).unwrap_or(DEFAULT_VERSION))
}

/// A driver is at least as new as the runtime that it serves.
pub fn driver_version() -> c_int {
    runtime_version().max(DEFAULT_VERSION)
}

/// The real library's answer, which needs no device: it stands behind ours in the loader's order.
fn next_version() -> Option<c_int> {
    // SAFETY: a lookup by name, which may fail.
    ask_version(unsafe { sys::dlsym(sys::RTLD_NEXT, c"cudaRuntimeGetVersion".as_ptr()) } as usize)
}

/// The same for a program that loaded the library for itself only.
fn loaded_version() -> Option<c_int> {
    RUNTIMES.iter().find_map(|name| {
        // SAFETY: looks for a library that is loaded already, and loads none.
        let library = unsafe { sys::dlopen(name.as_ptr(), sys::RTLD_LAZY | sys::RTLD_NOLOAD) };
        if library.is_null() {
            return None;
        }
        // SAFETY: a lookup by name in an open library.
        ask_version(unsafe { sys::dlsym(library, c"cudaRuntimeGetVersion".as_ptr()) } as usize)
    })
}

fn ask_version(function: usize) -> Option<c_int> {
    if function == 0 || function == cudaRuntimeGetVersion as *const () as usize {
        return None;
    }
    // SAFETY: the runtime exports this name with this signature only.
    let function = unsafe { transmute::<usize, VersionFunction>(function) };
    let mut version = 0;
    // SAFETY: the place is a local of the right type.
    (unsafe { function(&raw mut version) } == 0 && version > 0).then_some(version)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaRuntimeGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    report_code(unsafe { Slot::new(version) }.map(|place| place.put(runtime_version())))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: as above.
    report_code(unsafe { Slot::new(version) }.map(|place| place.put(driver_version())))
}
