//! MIG: the mode, the instances of a device, and the way back from an instance to its device.

use std::ffi::c_uint;

use super::abi::{Code, DevicePointer, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, SUCCESS};
use super::answer::{about_device, put_answer};
use super::world::{self, Handle};

pub(super) const CALLS: &[&str] = &[
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceIsMigDeviceHandle",
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
];

/// Compute instances that one GPU can have.
const MOST_INSTANCES: c_uint = 7;

/// `nvmlDeviceGetMigMode`: on where the script lists instances; `"mig_mode": 0` says that it could be on.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigMode(
    device: DevicePointer,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> Code {
    let world = world::lock_world();
    let mode = world.device("nvmlDeviceGetMigMode", device).and_then(|device| match device.instances {
        Some(_) => Ok(1),
        None => device.number("mig_mode", 0.0).map(|mode| mode as c_uint),
    });
    // SAFETY: the caller's promise.
    let codes = unsafe { [put_answer(current, mode), put_answer(pending, mode)] };
    codes.into_iter().find(|code| *code != SUCCESS).unwrap_or(SUCCESS)
}

/// `nvmlDeviceGetMaxMigDeviceCount`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: DevicePointer, count: *mut c_uint) -> Code {
    let compute = |device: &super::device::Device, _| Ok(if device.instances.is_some() { MOST_INSTANCES } else { 0 });
    // SAFETY: the caller's promise.
    unsafe { about_device("nvmlDeviceGetMaxMigDeviceCount", device, count, compute) }
}

/// `nvmlDeviceGetMigDeviceHandleByIndex`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: DevicePointer,
    index: c_uint,
    out: *mut DevicePointer,
) -> Code {
    let world = world::lock_world();
    let found = world.device("nvmlDeviceGetMigDeviceHandleByIndex", device).and_then(|found| {
        let instances = found.instances.as_ref().ok_or(NOT_SUPPORTED)?;
        let handle = Handle::of(device).ok_or(INVALID_ARGUMENT)?;
        let instance = index as usize;
        instances.get(instance).map(|_| Handle { instance: Some(instance), ..handle }.pointer()).ok_or(NOT_FOUND)
    });
    // SAFETY: the caller's promise.
    unsafe { put_answer(out, found) }
}

/// Answers from the handle, which must be one of an existing device.
///
/// # Safety
/// `out` is null or may be written.
unsafe fn of_handle<T>(
    call: &str,
    device: DevicePointer,
    out: *mut T,
    compute: impl FnOnce(Handle) -> Result<T, Code>,
) -> Code {
    let world = world::lock_world();
    let handle = world.device(call, device).and_then(|_| Handle::of(device).ok_or(INVALID_ARGUMENT));
    // SAFETY: the caller's promise.
    unsafe { put_answer(out, handle.and_then(compute)) }
}

/// `nvmlDeviceIsMigDeviceHandle`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceIsMigDeviceHandle(device: DevicePointer, out: *mut c_uint) -> Code {
    let compute = |handle: Handle| Ok(c_uint::from(handle.instance.is_some()));
    // SAFETY: the caller's promise.
    unsafe { of_handle("nvmlDeviceIsMigDeviceHandle", device, out, compute) }
}

/// `nvmlDeviceGetDeviceHandleFromMigDeviceHandle`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    device: DevicePointer,
    out: *mut DevicePointer,
) -> Code {
    let compute = |handle: Handle| match handle.instance {
        Some(_) => Ok(Handle { instance: None, ..handle }.pointer()),
        None => Err(INVALID_ARGUMENT),
    };
    // SAFETY: the caller's promise.
    unsafe { of_handle("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", device, out, compute) }
}

/// The id under `key`, of an instance only.
///
/// # Safety
/// `out` is null or may be written.
unsafe fn instance_id(call: &str, device: DevicePointer, key: &str, out: *mut c_uint) -> Code {
    let compute = |device: &super::device::Device, now| device.number(key, now).map(|id| id as c_uint);
    // SAFETY: the caller's promise.
    unsafe { about_device(call, device, out, compute) }
}

/// `nvmlDeviceGetGpuInstanceId`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGpuInstanceId(device: DevicePointer, id: *mut c_uint) -> Code {
    // SAFETY: the caller's promise.
    unsafe { instance_id("nvmlDeviceGetGpuInstanceId", device, "gpu_instance", id) }
}

/// `nvmlDeviceGetComputeInstanceId`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeInstanceId(device: DevicePointer, id: *mut c_uint) -> Code {
    // SAFETY: the caller's promise.
    unsafe { instance_id("nvmlDeviceGetComputeInstanceId", device, "compute_instance", id) }
}
