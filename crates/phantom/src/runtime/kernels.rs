//! Kernels: registered, configured, launched, and never run.
#![allow(non_snake_case)]

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint, c_void};

use super::capture::capturing;
use crate::boundary::{Slot, put_if_wanted, read, report_code};
use crate::error::{Error, Result};
use crate::memory::must_forget;
use crate::state;

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Dim3 {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

/// `cudaLaunchConfig_t`, as far as it is read.
#[repr(C)]
#[derive(Clone, Copy)]
struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared_memory: usize,
    stream: usize,
}

/// `cudaFuncAttributes` of CUDA 12 and 13.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FunctionAttributes {
    shared_bytes: usize,
    constant_bytes: usize,
    local_bytes: usize,
    max_threads_per_block: c_int,
    registers: c_int,
    ptx_version: c_int,
    binary_version: c_int,
    cache_mode: c_int,
    max_dynamic_shared_bytes: c_int,
    preferred_carveout: c_int,
    cluster: [c_int; 6],
    reserved: [c_int; 16],
}

/// Between `<<<...>>>`'s two halves: grid, block, shared memory and stream.
type Configuration = (Dim3, Dim3, usize, usize);

thread_local! {
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// Registers of a kernel, where a number is asked for: a typical one, as kernels are not looked into.
const REGISTERS: c_int = 32;
/// Resident blocks are not counted beyond this, the number that registers and shared memory leave of the 32 possible for
/// most of PyTorch's kernels. Kernels are not looked into, so one number serves all.
const MAX_OCCUPANCY: c_int = 16;

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinary(_binary: *const c_void) -> *mut *mut c_void {
    // A handle that is never looked into, but must not be null.
    std::ptr::without_provenance_mut(FATBIN_HANDLE)
}

/// Any address that is no null pointer.
const FATBIN_HANDLE: usize = 0x1000;

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinaryEnd(_handle: *mut *mut c_void) {}

#[unsafe(no_mangle)]
extern "C" fn __cudaUnregisterFatBinary(_handle: *mut *mut c_void) {}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFunction() {}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterVar() {}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterManagedVar() {}

#[unsafe(no_mangle)]
extern "C" fn __cudaInitModule(_handle: *mut *mut c_void) -> c_char {
    1
}

#[unsafe(no_mangle)]
extern "C" fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared: usize, stream: usize) -> c_uint {
    CONFIGURATIONS.with_borrow_mut(|stack| stack.push((grid, block, shared, stream)));
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaPopCallConfiguration(
    grid: *mut Dim3,
    block: *mut Dim3,
    shared: *mut usize,
    stream: *mut usize,
) -> c_int {
    let Some(top) = CONFIGURATIONS.with_borrow_mut(Vec::pop) else { return report_code(Err(Error::INVALID_VALUE)) };
    // SAFETY: places for results by the compiler's own calling code.
    unsafe {
        put_if_wanted(grid, top.0);
        put_if_wanted(block, top.1);
        put_if_wanted(shared, top.2);
        put_if_wanted(stream, top.3);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaGetKernel(kernel: *mut usize, function: usize) -> c_int {
    // SAFETY: a place for the handle by the compiler's own calling code.
    report_code(unsafe { Slot::new(kernel) }.map(|place| place.put(function)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetKernel(kernel: *mut usize, function: usize) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    report_code(unsafe { Slot::new(kernel) }.map(|place| place.put(function)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetFuncBySymbol(function: *mut usize, symbol: usize) -> c_int {
    // SAFETY: as above.
    report_code(unsafe { Slot::new(function) }.map(|place| place.put(symbol)))
}

/// A launch is checked only for what the runtime itself refuses; in a captured stream it is a node.
fn launch_kernel(function: usize, stream: usize) -> Result {
    if function == 0 {
        return Err(Error::INVALID_DEVICE_FUNCTION);
    }
    if must_forget() {
        state::lock_memory().forget_all();
    }
    if capturing() { state::lock_streams().add_nodes(stream, 1) } else { Ok(()) }
}

#[unsafe(no_mangle)]
extern "C" fn cudaLaunchKernel(
    function: usize,
    _grid: Dim3,
    _block: Dim3,
    _arguments: *const c_void,
    _shared: usize,
    stream: usize,
) -> c_int {
    report_code(launch_kernel(function, stream))
}

/// What CUDA 13's compiler calls instead.
#[unsafe(no_mangle)]
extern "C" fn __cudaLaunchKernel(
    kernel: usize,
    _grid: Dim3,
    _block: Dim3,
    _arguments: *const c_void,
    _shared: usize,
    stream: usize,
) -> c_int {
    report_code(launch_kernel(kernel, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cudaLaunchCooperativeKernel(
    function: usize,
    _grid: Dim3,
    _block: Dim3,
    _arguments: *const c_void,
    _shared: usize,
    stream: usize,
) -> c_int {
    report_code(launch_kernel(function, stream))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaLaunchKernelExC(config: *const c_void, function: usize, _arguments: *const c_void) -> c_int {
    // SAFETY: a configuration by the API's contract.
    let config = unsafe { read(config.cast::<LaunchConfig>()) };
    report_code(config.and_then(|config| launch_kernel(function, config.stream)))
}

/// The architecture whose code runs on a device of this capability, of those that PyTorch's wheels are compiled for: CUB
/// has no kernel for another and calls a null pointer.
fn compiled_for((major, minor): (i32, i32)) -> i32 {
    const COMPILED: [i32; 9] = [50, 60, 70, 75, 80, 86, 90, 100, 120];
    let version = major * 10 + minor;
    COMPILED.into_iter().rfind(|compiled| *compiled <= version).unwrap_or(version)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaFuncGetAttributes(attributes: *mut c_void, function: usize) -> c_int {
    // SAFETY: a place for the structure by the API's contract.
    let place = unsafe { Slot::new(attributes.cast::<FunctionAttributes>()) };
    report_code(place.and_then(|place| {
        let (_, device) = state::device_at(state::current_device()? as c_int)?;
        if function == 0 {
            return Err(Error::INVALID_DEVICE_FUNCTION);
        }
        let version = compiled_for(device.compute_capability);
        place.put(FunctionAttributes {
            max_threads_per_block: 1024,
            registers: REGISTERS,
            ptx_version: version,
            binary_version: version,
            max_dynamic_shared_bytes: 49_152,
            ..FunctionAttributes::default()
        });
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cudaFuncSetAttribute(function: usize, _attribute: c_int, _value: c_int) -> c_int {
    report_code(if function == 0 { Err(Error::INVALID_DEVICE_FUNCTION) } else { Ok(()) })
}

#[unsafe(no_mangle)]
extern "C" fn cudaFuncSetCacheConfig(function: usize, _config: c_int) -> c_int {
    report_code(if function == 0 { Err(Error::INVALID_DEVICE_FUNCTION) } else { Ok(()) })
}

/// Resident blocks of this size on a multiprocessor of the current device.
pub fn occupancy_of(block: c_int) -> Result<c_int> {
    let (_, device) = state::device_at(state::current_device()? as c_int)?;
    if block <= 0 {
        return Err(Error::INVALID_VALUE);
    }
    Ok((device.threads_per_multiprocessor / block).clamp(1, MAX_OCCUPANCY.min(device.blocks_per_multiprocessor())))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    _function: usize,
    block: c_int,
    _shared: usize,
) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(blocks) };
    report_code(place.and_then(|place| place.give(occupancy_of(block)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: *mut c_int,
    function: usize,
    block: c_int,
    shared: usize,
    _flags: c_uint,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block, shared) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaOccupancyMaxActiveClusters(
    clusters: *mut c_int,
    _function: usize,
    _config: *const c_void,
) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(clusters) };
    report_code(place.and_then(|place| {
        let (_, device) = state::device_at(state::current_device()? as c_int)?;
        place.give(device.multiprocessors)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaOccupancyAvailableDynamicSMemPerBlock(bytes: *mut usize) -> c_int {
    // SAFETY: as above.
    report_code(unsafe { Slot::new(bytes) }.map(|place| place.put(49_152)))
}
