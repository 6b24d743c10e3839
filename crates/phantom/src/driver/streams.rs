//! Streams and events by the driver's names.
#![allow(non_snake_case)]

use std::ffi::{c_int, c_uint};

use crate::boundary::{Slot, code_of};
use crate::state;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(stream: *mut usize, flags: c_uint) -> c_int {
    // SAFETY: the same contract.
    unsafe { cuStreamCreateWithPriority(stream, flags, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreateWithPriority(stream: *mut usize, flags: c_uint, priority: c_int) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    let place = unsafe { Slot::new(stream) };
    code_of(place.and_then(|place| {
        let device = state::current_device()?;
        place.give(state::lock_streams().create_stream(device, flags, priority))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: usize) -> c_int {
    code_of(state::lock_streams().destroy_stream(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: usize) -> c_int {
    code_of(state::lock_streams().wait(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: usize) -> c_int {
    code_of(state::lock_streams().wait(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) -> c_int {
    code_of(state::lock_streams().wait_event(stream, event))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamIsCapturing(stream: usize, status: *mut c_int) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(status) };
    code_of(place.and_then(|place| place.give(c_int::from(state::lock_streams().capture_of(stream)?.is_some()))))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetCtx(stream: usize, context: *mut usize) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(context) };
    code_of(place.and_then(|place| place.give(0x4000 + state::lock_streams().stream(stream)?.device)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut usize, flags: c_uint) -> c_int {
    // SAFETY: as above.
    code_of(unsafe { Slot::new(event) }.map(|place| place.put(state::lock_streams().create_event(flags))))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: usize) -> c_int {
    code_of(state::lock_streams().destroy_event(event))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: usize, stream: usize) -> c_int {
    code_of(state::lock_streams().record(event, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: usize) -> c_int {
    code_of(state::lock_streams().check_event(event))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: usize) -> c_int {
    code_of(state::lock_streams().check_event(event))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, from: usize, to: usize) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(milliseconds) };
    code_of(place.and_then(|place| place.give(state::lock_streams().elapsed(from, to)?)))
}
