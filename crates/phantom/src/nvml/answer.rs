//! How a call answers: finds its device, computes, writes through the caller's pointer.

use std::ffi::{c_char, c_uint};

use super::abi::{Code, DevicePointer, INSUFFICIENT_SIZE, INVALID_ARGUMENT, SUCCESS};
use super::device::Device;
use super::world;

/// Answers `call` about the device with what `compute` makes of it and of the time.
///
/// # Safety
/// `out` is null or may be written.
pub(super) unsafe fn about_device<T>(
    call: &str,
    device: DevicePointer,
    out: *mut T,
    compute: impl FnOnce(&Device, f64) -> Result<T, Code>,
) -> Code {
    let mut world = world::lock_world();
    let now = world.now();
    let value = world.device(call, device).and_then(|device| compute(device, now));
    // SAFETY: the caller's promise.
    unsafe { put_answer(out, value) }
}

/// Answers `call` about the system.
///
/// # Safety
/// `out` is null or may be written.
pub(super) unsafe fn about_system<T>(
    call: &str,
    out: *mut T,
    compute: impl FnOnce(&world::World) -> Result<T, Code>,
) -> Code {
    let world = world::lock_world();
    let value = match world.system_error(call) {
        SUCCESS => compute(&world),
        error => Err(error),
    };
    // SAFETY: the caller's promise.
    unsafe { put_answer(out, value) }
}

/// Writes a value, or returns the error.
///
/// # Safety
/// `out` is null or may be written.
pub(super) unsafe fn put_answer<T>(out: *mut T, value: Result<T, Code>) -> Code {
    match value {
        Ok(_) if out.is_null() => INVALID_ARGUMENT,
        Ok(value) => {
            // SAFETY: it is not null, and the caller's pointer is of this type by `nvml.h`.
            unsafe { out.write(value) };
            SUCCESS
        }
        Err(code) => code,
    }
}

/// Copies `text` and its final zero into the caller's buffer.
///
/// # Safety
/// `out` is null or has room for `length` bytes.
pub(super) unsafe fn put_text(out: *mut c_char, length: c_uint, text: Result<&str, Code>) -> Code {
    let text = match text {
        Ok(text) => text,
        Err(code) => return code,
    };
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    if text.len() >= length as usize {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: `length` bytes are there, and text and zero are no more.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast::<u8>(), text.len());
        out.add(text.len()).write(0);
    }
    SUCCESS
}

/// `text` in a field of fixed length, cut where it is too long.
pub(super) fn fixed_text<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (place, byte) in field.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = byte as c_char;
    }
    field
}
