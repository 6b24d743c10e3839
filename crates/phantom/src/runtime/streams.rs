//! Streams: `cudaStream*`, callbacks among them, which run at once.
#![allow(non_snake_case)]

use std::ffi::{c_int, c_uint, c_void};

use super::capture::CaptureState;
use super::runtime_version;
use crate::boundary::{Slot, put_if_wanted, report_code};
use crate::error::{Error, Result};
use crate::state;

type HostFunction = extern "C" fn(*mut c_void);
type Callback = extern "C" fn(usize, c_int, *mut c_void);

/// The range of priorities of every GPU since Pascal: the lowest is 0, the highest -5.
const HIGHEST_PRIORITY: c_int = -5;

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDeviceGetStreamPriorityRange(lowest: *mut c_int, highest: *mut c_int) -> c_int {
    // SAFETY: places for results, or null, by the API's contract.
    unsafe {
        put_if_wanted(lowest, 0);
        put_if_wanted(highest, HIGHEST_PRIORITY);
    }
    0
}

fn new_stream(place: Result<Slot<usize>>, flags: c_uint, priority: c_int) -> Result {
    let place = place?;
    let device = state::current_device()?;
    state::lock_memory().accounts.enter(device)?;
    place.put(state::lock_streams().create_stream(device, flags, priority.clamp(HIGHEST_PRIORITY, 0)));
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamCreate(stream: *mut usize) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    report_code(new_stream(unsafe { Slot::new(stream) }, 0, 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamCreateWithFlags(stream: *mut usize, flags: c_uint) -> c_int {
    // SAFETY: as above.
    report_code(new_stream(unsafe { Slot::new(stream) }, flags, 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamCreateWithPriority(stream: *mut usize, flags: c_uint, priority: c_int) -> c_int {
    // SAFETY: as above.
    report_code(new_stream(unsafe { Slot::new(stream) }, flags, priority))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamDestroy(stream: usize) -> c_int {
    report_code(state::lock_streams().destroy_stream(stream))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamGetPriority(stream: usize, priority: *mut c_int) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(priority) };
    report_code(place.and_then(|place| place.give(state::lock_streams().stream(stream)?.priority)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamGetFlags(stream: usize, flags: *mut c_uint) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(flags) };
    report_code(place.and_then(|place| place.give(state::lock_streams().stream(stream)?.flags)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamGetDevice(stream: usize, device: *mut c_int) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(device) };
    report_code(place.and_then(|place| place.give(state::lock_streams().stream(stream)?.device as c_int)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamGetId(stream: usize, id: *mut u64) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(id) };
    report_code(place.and_then(|place| {
        state::lock_streams().stream(stream)?;
        place.give(stream as u64)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamSynchronize(stream: usize) -> c_int {
    report_code(state::lock_streams().wait(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamQuery(stream: usize) -> c_int {
    report_code(state::lock_streams().wait(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) -> c_int {
    report_code(state::lock_streams().wait_event(stream, event))
}

/// A host function put into a captured stream is a node; else it runs now. The lock is free again before it runs: it may
/// call CUDA.
fn is_due(stream: usize) -> Result<bool> {
    let mut streams = state::lock_streams();
    let captured = streams.capture_of(stream)?.is_some();
    streams.add_nodes(stream, 1)?;
    Ok(!captured)
}

#[unsafe(no_mangle)]
extern "C" fn cudaLaunchHostFunc(stream: usize, function: Option<HostFunction>, data: *mut c_void) -> c_int {
    let Some(function) = function else { return report_code(Err(Error::INVALID_VALUE)) };
    report_code(is_due(stream).map(|due| {
        if due {
            function(data);
        }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamAddCallback(
    stream: usize,
    callback: Option<Callback>,
    data: *mut c_void,
    _flags: c_uint,
) -> c_int {
    let Some(callback) = callback else { return report_code(Err(Error::INVALID_VALUE)) };
    report_code(state::lock_streams().wait(stream).map(|()| callback(stream, 0, data)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamAttachMemAsync(stream: usize, _address: usize, _bytes: usize, _flags: c_uint) -> c_int {
    report_code(state::lock_streams().stream(stream).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamSetAttribute(stream: usize, _attribute: c_int, _value: *const c_void) -> c_int {
    report_code(state::lock_streams().stream(stream).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cudaCtxResetPersistingL2Cache() -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamBeginCapture(stream: usize, mode: c_int) -> c_int {
    report_code(if (0..=2).contains(&mode) {
        state::lock_streams().begin_capture(stream)
    } else {
        Err(Error::INVALID_VALUE)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamEndCapture(stream: usize, graph: *mut usize) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    let place = unsafe { Slot::new(graph) };
    report_code(place.and_then(|place| place.give(state::lock_streams().end_capture(stream)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamIsCapturing(stream: usize, status: *mut c_int) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(status) };
    report_code(place.and_then(|place| place.give(c_int::from(state::lock_streams().capture_of(stream)?.is_some()))))
}

/// The status, and where wanted, the capture's identity.
///
/// # Safety
/// Each place is null or valid for its result.
unsafe fn capture_info(stream: usize, status: *mut c_int, id: *mut u64) -> Result<Option<CaptureState>> {
    // SAFETY: the caller's promise is passed on.
    let status = unsafe { Slot::new(status) }?;
    let capture = state::lock_streams().capture_of(stream)?;
    status.put(c_int::from(capture.is_some()));
    if let Some(capture) = capture {
        // SAFETY: as above.
        unsafe { put_if_wanted(id, capture.id) };
    }
    Ok(capture)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamGetCaptureInfo_v2(
    stream: usize,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut usize,
    dependencies: *mut usize,
    count: *mut usize,
) -> c_int {
    // SAFETY: places for results, or null, by the API's contract.
    let info = unsafe { capture_info(stream, status, id) };
    report_code(info.map(|capture| {
        if let Some(capture) = capture {
            // SAFETY: as above. A graph's order is not kept, so nothing has dependencies.
            unsafe {
                put_if_wanted(graph, capture.graph);
                put_if_wanted(dependencies, 0);
                put_if_wanted(count, 0);
            }
        }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamGetCaptureInfo_v3(
    stream: usize,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut usize,
    dependencies: *mut usize,
    edges: *mut usize,
    count: *mut usize,
) -> c_int {
    // SAFETY: places for results, or null, by the API's contract.
    let result = unsafe { cudaStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count) };
    if result == 0 && status_is_active(stream) {
        // SAFETY: as above.
        unsafe { put_if_wanted(edges, 0) };
    }
    result
}

fn status_is_active(stream: usize) -> bool {
    matches!(state::lock_streams().capture_of(stream), Ok(Some(_)))
}

/// CUDA 13 gave the name of the function with three parameters to the one with seven.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamGetCaptureInfo(
    stream: usize,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut usize,
    dependencies: *mut usize,
    edges: *mut usize,
    count: *mut usize,
) -> c_int {
    if runtime_version() >= 13_000 {
        // SAFETY: places for results, or null, by the API's contract.
        return unsafe { cudaStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count) };
    }
    // SAFETY: as above; the other parameters were not passed.
    report_code(unsafe { capture_info(stream, status, id) }.map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamUpdateCaptureDependencies(stream: usize) -> c_int {
    report_code(state::lock_streams().capture_of(stream).and_then(|it| it.map(drop).ok_or(Error::ILLEGAL_STATE)))
}

/// Every call is allowed while capturing, as in relaxed mode, so the mode is only handed back.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int {
    use std::cell::Cell;
    thread_local! {
        static MODE: Cell<c_int> = const { Cell::new(0) };
    }
    // SAFETY: a place with a mode in it by the API's contract.
    let exchanged = unsafe { crate::boundary::read(mode) }.and_then(|new| {
        if !(0..=2).contains(&new) {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: as above.
        unsafe { Slot::new(mode) }.map(|place| place.put(MODE.replace(new)))
    });
    report_code(exchanged)
}
