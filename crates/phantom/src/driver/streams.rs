//! Streams and events by the driver's names.
#![allow(non_snake_case)]

use std::ffi::{c_int, c_uint};

use crate::boundary::{Slot, code};
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
    code(place.and_then(|place| {
        let device = state::current()?;
        place.give(state::streams().create_stream(device, flags, priority))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: usize) -> c_int {
    code(state::streams().destroy_stream(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: usize) -> c_int {
    code(state::streams().wait(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: usize) -> c_int {
    code(state::streams().wait(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) -> c_int {
    code(state::streams().wait_event(stream, event))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamIsCapturing(stream: usize, status: *mut c_int) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(status) };
    code(place.and_then(|place| place.give(c_int::from(state::streams().capture_of(stream)?.is_some()))))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetCtx(stream: usize, context: *mut usize) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(context) };
    code(place.and_then(|place| place.give(0x4000 + state::streams().stream(stream)?.device)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut usize, flags: c_uint) -> c_int {
    // SAFETY: as above.
    code(unsafe { Slot::new(event) }.map(|place| place.put(state::streams().create_event(flags))))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: usize) -> c_int {
    code(state::streams().destroy_event(event))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: usize, stream: usize) -> c_int {
    code(state::streams().record(event, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: usize) -> c_int {
    code(state::streams().check_event(event))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: usize) -> c_int {
    code(state::streams().check_event(event))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, from: usize, to: usize) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(milliseconds) };
    code(place.and_then(|place| place.give(state::streams().elapsed(from, to)?)))
}
