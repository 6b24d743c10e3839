//! Events: `cudaEvent*`. Whatever was recorded has happened.
#![allow(non_snake_case)]

use std::ffi::{c_int, c_uint};

use crate::boundary::{Slot, report_code};
use crate::error::Error;
use crate::state;

/// All flags that exist: blocking sync, no timing, interprocess.
const EVENT_FLAGS: c_uint = 7;

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaEventCreate(event: *mut usize) -> c_int {
    // SAFETY: the same contract.
    unsafe { cudaEventCreateWithFlags(event, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaEventCreateWithFlags(event: *mut usize, flags: c_uint) -> c_int {
    if flags & !EVENT_FLAGS != 0 {
        return report_code(Err(Error::INVALID_VALUE));
    }
    // SAFETY: a place for the handle by the API's contract.
    let place = unsafe { Slot::new(event) };
    report_code(place.and_then(|place| {
        state::current_device()?;
        place.give(state::lock_streams().create_event(flags))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventDestroy(event: usize) -> c_int {
    report_code(state::lock_streams().destroy_event(event))
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventRecord(event: usize, stream: usize) -> c_int {
    report_code(state::lock_streams().record(event, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventRecordWithFlags(event: usize, stream: usize, _flags: c_uint) -> c_int {
    report_code(state::lock_streams().record(event, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventQuery(event: usize) -> c_int {
    report_code(state::lock_streams().check_event(event))
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventSynchronize(event: usize) -> c_int {
    report_code(state::lock_streams().check_event(event))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaEventElapsedTime(milliseconds: *mut f32, from: usize, to: usize) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(milliseconds) };
    report_code(place.and_then(|place| place.give(state::lock_streams().elapsed(from, to)?)))
}

/// The name that CUDA 12.8 gave a variant with the same meaning.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaEventElapsedTime_v2(milliseconds: *mut f32, from: usize, to: usize) -> c_int {
    // SAFETY: the same contract.
    unsafe { cudaEventElapsedTime(milliseconds, from, to) }
}
