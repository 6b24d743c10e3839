//! Launches by the driver's names: nodes in captured streams, nothing otherwise.
#![allow(non_snake_case)]

use std::ffi::{c_int, c_uint, c_void};

use crate::accepted::{accepted, handled};
use crate::boundary::{code_of, read};
use crate::error::{Error, Result};
use crate::memory::must_forget;
use crate::state;

/// `CUlaunchConfig`, as far as it is read.
#[repr(C)]
#[derive(Clone, Copy)]
struct LaunchConfig {
    grid_and_block: [c_uint; 6],
    shared_bytes: c_uint,
    stream: usize,
}

fn launch_kernel(function: usize, stream: usize) -> Result {
    if function == 0 {
        return Err(Error::INVALID_HANDLE);
    }
    if must_forget() {
        state::lock_memory().forget_all();
    }
    state::lock_streams().add_nodes(stream, 1)
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    function: usize,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared: c_uint,
    stream: usize,
) -> c_int {
    code_of(launch_kernel(function, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchCooperativeKernel(
    function: usize,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared: c_uint,
    stream: usize,
) -> c_int {
    code_of(launch_kernel(function, stream))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernelEx(config: *const c_void, function: usize) -> c_int {
    // SAFETY: a configuration by the API's contract.
    let config = unsafe { read(config.cast::<LaunchConfig>()) };
    code_of(config.and_then(|config| launch_kernel(function, config.stream)))
}

// Streams write and wait for values that nobody else changes.
accepted! {
    cuStreamWriteValue32 cuStreamWriteValue32_v2 cuStreamWriteValue64_v2 cuStreamWaitValue32_v2 cuStreamWaitValue64_v2
    cuStreamBatchMemOp_v2 cuProfilerStart cuProfilerStop
}

// Descriptions of memory for kernels that do not run.
handled! {
    Error::INVALID_VALUE.0;
    cuTensorMapEncodeTiled cuTensorMapEncodeIm2col cuTensorMapEncodeIm2colWide cuTensorMapReplaceAddress
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_functions_and_unknown_streams_are_refused() {
        assert_eq!(cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0), 400);
        assert_eq!(cuLaunchKernel(16, 1, 1, 1, 1, 1, 1, 0, 77), 400);
        assert_eq!(cuLaunchKernel(16, 1, 1, 1, 1, 1, 1, 0, 0), 0);
        // SAFETY: null is what is tested.
        assert_eq!(unsafe { cuLaunchKernelEx(std::ptr::null(), 16) }, 1);
    }
}
