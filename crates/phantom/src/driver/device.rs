//! Devices and versions: `cuInit`, `cuDevice*`, error texts, functions by name.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::boundary::{Slot, code_of, put_if_wanted};
use crate::error::{Error, Result, describe_error};
use crate::runtime::{attribute, driver_version, find_entry};
use crate::state;

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> c_int {
    code_of(match flags {
        0 if state::config().devices.is_empty() => Err(Error::NO_DEVICE),
        0 => Ok(()),
        _ => Err(Error::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    code_of(unsafe { Slot::new(version) }.map(|place| place.put(driver_version())))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    // SAFETY: as above.
    code_of(unsafe { Slot::new(count) }.map(|place| place.put(state::config().devices.len() as c_int)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(device) };
    code_of(place.and_then(|place| {
        state::device_at(ordinal)?;
        place.give(ordinal)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(value) };
    code_of(place.and_then(|place| place.give(self::attribute(attribute, device)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> c_int {
    let written = state::device_at(device).and_then(|(_, device)| {
        let length = usize::try_from(length).ok().filter(|&length| length > 0).ok_or(Error::INVALID_VALUE)?;
        if name.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        let text = device.name();
        let kept = text.len().min(length - 1);
        // SAFETY: the caller said that `length` bytes are there; the text and its zero are no longer.
        unsafe {
            name.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), kept);
            name.add(kept).write(0);
        }
        Ok(())
    });
    code_of(written)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(uuid) };
    code_of(place.and_then(|place| place.give(state::device_at(device)?.1.uuid)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> c_int {
    // SAFETY: the same contract.
    unsafe { cuDeviceGetUuid(uuid, device) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(bytes) };
    code_of(place.and_then(|place| place.give(state::device_at(device)?.1.total as usize)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, device: c_int) -> c_int {
    // SAFETY: places for results by the API's contract.
    let places = unsafe { Slot::new(major).and_then(|major| Ok((major, Slot::new(minor)?))) };
    code_of(places.and_then(|(major, minor)| {
        let (_, device) = state::device_at(device)?;
        major.put(device.compute_capability.0);
        minor.give(device.compute_capability.1)
    }))
}

/// The driver's names are the runtime's with another beginning; its texts are the same.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(text) };
    code_of(place.and_then(|place| describe_to(place, describe_error(error).map(|(_, text)| text))))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: c_int, name: *mut *const c_char) -> c_int {
    let known = match error {
        0 => Some(c"CUDA_SUCCESS"),
        1 => Some(c"CUDA_ERROR_INVALID_VALUE"),
        2 => Some(c"CUDA_ERROR_OUT_OF_MEMORY"),
        100 => Some(c"CUDA_ERROR_NO_DEVICE"),
        101 => Some(c"CUDA_ERROR_INVALID_DEVICE"),
        201 => Some(c"CUDA_ERROR_INVALID_CONTEXT"),
        400 => Some(c"CUDA_ERROR_INVALID_HANDLE"),
        500 => Some(c"CUDA_ERROR_NOT_FOUND"),
        801 => Some(c"CUDA_ERROR_NOT_SUPPORTED"),
        900 => Some(c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
        other => describe_error(other).map(|(name, _)| name),
    };
    // SAFETY: as above.
    let place = unsafe { Slot::new(name) };
    code_of(place.and_then(|place| describe_to(place, known)))
}

fn describe_to(place: Slot<*const c_char>, text: Option<&'static CStr>) -> Result {
    place.put(text.map_or(std::ptr::null(), CStr::as_ptr));
    if text.is_some() { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

/// # Safety
/// `name` is null or a string, the places are null or valid.
unsafe fn address_of(name: *const c_char, function: *mut *mut c_void, status: *mut c_int) -> Result {
    // SAFETY: the caller's promise.
    let place = unsafe { Slot::new(function) }?;
    if name.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: not null, so a string by the caller's promise.
    let address = find_entry(unsafe { CStr::from_ptr(name) });
    place.put(address.unwrap_or(0) as *mut c_void);
    // SAFETY: the caller's promise; 0 is "found", 1 is "symbol not found".
    unsafe { put_if_wanted(status, c_int::from(address.is_none())) };
    address.map(drop).ok_or(Error::NOT_FOUND)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    function: *mut *mut c_void,
    _version: c_int,
    _flags: u64,
    status: *mut c_int,
) -> c_int {
    // SAFETY: the API's contract.
    code_of(unsafe { address_of(name, function, status) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    function: *mut *mut c_void,
    _version: c_int,
    _flags: u64,
) -> c_int {
    // SAFETY: the API's contract.
    code_of(unsafe { address_of(name, function, std::ptr::null_mut()) })
}

/// Tables that NVIDIA's own libraries ask for by number; there is none, and they say so.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetExportTable(table: *mut *const c_void, _id: *const c_void) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(table) };
    code_of(place.and_then(|place| {
        place.put(std::ptr::null());
        Err(Error::NOT_FOUND)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null, null_mut};

    #[test]
    fn hostile_arguments_give_documented_errors() {
        let mut value = 0;
        let mut name = [1; 8];
        let mut text = null();
        assert_eq!((cuInit(0), cuInit(4)), (0, 1));
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(cuDeviceGet(null_mut(), 0), 1);
            assert_eq!(cuDeviceGet(&raw mut value, 1), 101);
            assert_eq!(cuDeviceGetAttribute(&raw mut value, 16, -1), 101);
            assert_eq!(cuDeviceGetName(null_mut(), 8, 0), 1);
            assert_eq!(cuDeviceGetName(name.as_mut_ptr(), 0, 0), 1);
            assert_eq!((cuDeviceGetName(name.as_mut_ptr(), 8, 0), name[7]), (0, 0));
            assert_eq!(cuGetErrorString(2, null_mut()), 1);
            assert_eq!(cuGetErrorString(31_337, &raw mut text), 1);
            assert_eq!(cuGetErrorString(2, &raw mut text), 0);
            assert_eq!(CStr::from_ptr(text), c"out of memory");
            assert_eq!(cuGetProcAddress(null(), null_mut(), 0, 0), 1);
            let mut function = null_mut();
            assert_eq!(cuGetProcAddress(c"cuNothing".as_ptr(), &raw mut function, 0, 0), 500);
            assert_eq!(cuGetProcAddress(c"printf".as_ptr(), &raw mut function, 0, 0), 500);
        }
    }
}
