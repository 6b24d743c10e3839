//! Contexts: each device has its primary one, and no other. A context's handle tells its device.
#![allow(non_snake_case)]

use std::ffi::{c_int, c_uint};

use crate::boundary::{Slot, code_of, put_if_wanted};
use crate::error::{Error, Result};
use crate::runtime::device_limit;
use crate::state;

/// A context's handle is this plus its device, so that none is null.
const FIRST_CONTEXT: usize = 0x4000;

fn context_of(device: usize) -> usize {
    FIRST_CONTEXT + device
}

fn device_of(context: usize) -> Result<usize> {
    let device = context.checked_sub(FIRST_CONTEXT).ok_or(Error::INVALID_CONTEXT)?;
    if device < state::config().devices.len() { Ok(device) } else { Err(Error::INVALID_CONTEXT) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int) -> c_int {
    // SAFETY: places for results by the API's contract.
    let places = unsafe { Slot::new(flags).and_then(|flags| Ok((flags, Slot::new(active)?))) };
    code_of(places.and_then(|(flags, active)| {
        let (index, _) = state::device_at(device)?;
        flags.put(0);
        active.give(c_int::from(state::lock_memory().accounts.has_context(index)))
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    let place = unsafe { Slot::new(context) };
    code_of(place.and_then(|place| {
        let (index, _) = state::device_at(device)?;
        state::lock_memory().accounts.enter(index)?;
        place.give(context_of(index))
    }))
}

/// The context stays: its memory is given back when the process ends.
#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_int {
    code_of(state::device_at(device).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxReset_v2(device: c_int) -> c_int {
    code_of(state::device_at(device).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, _flags: c_uint) -> c_int {
    code_of(state::device_at(device).map(drop))
}

/// There is a current context once the thread's device has been used.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut usize) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    let place = unsafe { Slot::new(context) };
    code_of(place.and_then(|place| {
        let device = state::current_device()?;
        let has_context = state::lock_memory().accounts.has_context(device);
        place.give(if has_context { context_of(device) } else { 0 })
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: usize) -> c_int {
    if context == 0 {
        return 0;
    }
    code_of(device_of(context).map(state::set_current))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: usize) -> c_int {
    code_of(device_of(context).map(state::set_current))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut usize) -> c_int {
    code_of(state::current_device().map(|device| {
        // SAFETY: a place for the handle, or null, by the API's contract.
        unsafe { put_if_wanted(context, context_of(device)) };
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(device) };
    code_of(place.and_then(|place| place.give(state::current_device()? as c_int)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetApiVersion(_context: usize, version: *mut c_uint) -> c_int {
    // SAFETY: as above. 3020 is what every driver since CUDA 3.2 answers.
    code_of(unsafe { Slot::new(version) }.map(|place| place.put(3020)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetStreamPriorityRange(lowest: *mut c_int, highest: *mut c_int) -> c_int {
    // SAFETY: places for results, or null, by the API's contract.
    unsafe {
        put_if_wanted(lowest, 0);
        put_if_wanted(highest, -5);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> c_int {
    code_of(state::current_device().map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxEnablePeerAccess(context: usize, _flags: c_uint) -> c_int {
    code_of(device_of(context).map(drop))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(can) };
    code_of(place.and_then(|place| {
        let (device, peer) = (state::device_at(device)?.0, state::device_at(peer)?.0);
        place.give(c_int::from(device != peer))
    }))
}

/// Limits by the runtime's numbers.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetLimit(value: *mut usize, limit: c_int) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(value) };
    code_of(place.and_then(|place| place.give(device_limit(limit)?)))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetLimit(limit: c_int, _value: usize) -> c_int {
    code_of(device_limit(limit).map(drop))
}

/// Green contexts give a stream some of a device's multiprocessors: they are refused.
macro_rules! no_green_contexts {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            code_of(Err(Error::NOT_SUPPORTED))
        }
    )*};
}

no_green_contexts! {
    cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxStreamCreate cuCtxFromGreenCtx cuDeviceGetDevResource
    cuDevSmResourceSplitByCount cuDevResourceGenerateDesc
}

/// Further contexts of a device would share its memory with others: programs that make them are not served.
#[unsafe(no_mangle)]
extern "C" fn cuCtxCreate_v2() -> c_int {
    code_of(Err(Error::NOT_SUPPORTED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    #[test]
    fn contexts_are_told_from_other_numbers() {
        let mut context = 0;
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(cuDevicePrimaryCtxRetain(null_mut(), 0), 1);
            assert_eq!(cuDevicePrimaryCtxRetain(&raw mut context, 4), 101);
            assert_eq!(cuDevicePrimaryCtxRetain(&raw mut context, 0), 0);
            let (mut flags, mut active) = (7, 7);
            assert_eq!(cuDevicePrimaryCtxGetState(0, null_mut(), &raw mut active), 1);
            assert_eq!(cuDevicePrimaryCtxGetState(9, &raw mut flags, &raw mut active), 101);
            assert_eq!(cuDevicePrimaryCtxGetState(0, &raw mut flags, &raw mut active), 0);
            assert_eq!((flags, active), (0, 1));
            assert_eq!(cuCtxGetCurrent(null_mut()), 1);
        }
        assert_eq!((cuCtxSetCurrent(context), cuCtxSetCurrent(context + 1), cuCtxSetCurrent(3)), (0, 201, 201));
        assert_eq!((cuCtxCreate_v2(), cuGreenCtxCreate(), cuCtxSetLimit(77, 1)), (801, 801, 1));
    }
}
