//! Modules and functions: images are taken and not looked into.
#![allow(non_snake_case)]

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::boundary::{Slot, code_of, put_if_wanted};
use crate::error::{Error, Result};
use crate::runtime::occupancy_of;
use crate::state;

/// # Safety
/// `place` is null or a place for a handle.
unsafe fn new_handle(place: *mut usize, source: *const c_void) -> Result {
    // SAFETY: the caller's promise.
    let place = unsafe { Slot::new(place) }?;
    if source.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    place.put(state::lock_streams().handle());
    Ok(())
}

/// Functions of one shape: a place for a handle, and what it is made of.
macro_rules! loads {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(module: *mut usize, source: *const c_void) -> c_int {
            // SAFETY: a place for the handle by the API's contract.
            code_of(unsafe { new_handle(module, source) })
        }
    )*};
}

loads! { cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuLibraryLoadData cuLibraryLoadFromFile }

/// Functions of one shape: a handle that is not null, and success.
macro_rules! accepts {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(handle: usize) -> c_int {
            code_of(if handle == 0 { Err(Error::INVALID_HANDLE) } else { Ok(()) })
        }
    )*};
}

accepts! {
    cuModuleUnload cuLibraryUnload cuFuncSetAttribute cuFuncSetCacheConfig cuFuncSetSharedMemConfig cuFuncLoad
    cuKernelSetAttribute cuKernelSetCacheConfig cuLinkAddData_v2 cuLinkAddFile_v2 cuLinkDestroy
}

/// # Safety
/// `function` is null or a place, `name` null or a string.
unsafe fn function_named(function: *mut usize, module: usize, name: *const c_char) -> Result {
    if module == 0 {
        return Err(Error::INVALID_HANDLE);
    }
    // SAFETY: the caller's promise.
    unsafe { new_handle(function, name.cast()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) -> c_int {
    // SAFETY: the API's contract.
    code_of(unsafe { function_named(function, module, name) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLibraryGetKernel(kernel: *mut usize, library: usize, name: *const c_char) -> c_int {
    // SAFETY: the API's contract.
    code_of(unsafe { function_named(kernel, library, name) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLibraryGetModule(module: *mut usize, library: usize) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    code_of(unsafe { Slot::new(module) }.map(|place| place.put(library)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuKernelGetFunction(function: *mut usize, kernel: usize) -> c_int {
    // SAFETY: as above.
    code_of(unsafe { Slot::new(function) }.map(|place| place.put(kernel)))
}

/// A module's variables have no memory of their own here.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetGlobal_v2(address: *mut usize, bytes: *mut usize) -> c_int {
    // SAFETY: places for results, or null, by the API's contract.
    unsafe {
        put_if_wanted(address, 0);
        put_if_wanted(bytes, 0);
    }
    code_of(Err(Error::NOT_FOUND))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetLoadingMode(mode: *mut c_int) -> c_int {
    // SAFETY: a place for the result by the API's contract. 2 is lazy loading, CUDA 12's default.
    code_of(unsafe { Slot::new(mode) }.map(|place| place.put(2)))
}

/// The linker's result is an image that nobody looks into.
static IMAGE: [u8; 16] = [0; 16];

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLinkCreate_v2(
    _count: c_uint,
    _options: *const c_int,
    _values: *const *const c_void,
    linker: *mut usize,
) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    code_of(unsafe { Slot::new(linker) }.map(|place| place.put(state::lock_streams().handle())))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLinkComplete(linker: usize, image: *mut *const u8, bytes: *mut usize) -> c_int {
    if linker == 0 {
        return Error::INVALID_HANDLE.0;
    }
    // SAFETY: places for results, or null, by the API's contract.
    unsafe {
        put_if_wanted(image, IMAGE.as_ptr());
        put_if_wanted(bytes, IMAGE.len());
    }
    0
}

/// `CUfunction_attribute`: threads of a block, registers and architecture, as the runtime's answer has them; a kernel
/// spills nothing and uses no shared memory of its own.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: usize) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(value) };
    code_of(place.and_then(|place| {
        let (_, device) = state::device_at(state::current_device()? as c_int)?;
        if function == 0 {
            return Err(Error::INVALID_HANDLE);
        }
        let architecture = device.compute_capability.0 * 10 + device.compute_capability.1;
        place.put(match attribute {
            0 => 1024,
            4 => 32,
            5 | 6 => architecture,
            8 => 49_152,
            _ => 0,
        });
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    _function: usize,
    block: c_int,
    _shared: usize,
) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(blocks) };
    code_of(place.and_then(|place| place.give(occupancy_of(block)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveClusters(
    clusters: *mut c_int,
    _function: usize,
    _config: *const c_void,
) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(clusters) };
    code_of(place.and_then(|place| {
        let (_, device) = state::device_at(state::current_device()? as c_int)?;
        place.give(device.multiprocessors)
    }))
}
