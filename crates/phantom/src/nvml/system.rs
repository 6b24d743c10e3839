//! Calls about the whole machine: start and end, versions, how many devices, handles, words for errors.

use std::ffi::{CStr, c_char, c_int, c_uint};

use super::abi::{Code, DevicePointer, ERRORS, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, SUCCESS, UNINITIALIZED};
use super::answer::{about_system, put_answer, put_text};
use super::identity;
use super::world::{self, Handle, World};

pub(super) const CALLS: &[&str] = &[
    "nvmlInit_v2",
    "nvmlInitWithFlags",
    "nvmlShutdown",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlSystemGetCudaDriverVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlSystemGetProcessName",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetHandleByPciBusId_v2",
];

fn init_library(call: &str) -> Code {
    let mut world = world::lock_world();
    let injected = world.state.system.error(call);
    if injected == SUCCESS {
        world.initialized += 1;
    }
    injected
}

/// `nvmlInit`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit() -> Code {
    init_library("nvmlInit_v2")
}

/// `nvmlInit_v2`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Code {
    init_library("nvmlInit_v2")
}

/// `nvmlInitWithFlags`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> Code {
    init_library("nvmlInitWithFlags")
}

/// `nvmlShutdown`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> Code {
    let mut world = world::lock_world();
    if world.initialized == 0 {
        return UNINITIALIZED;
    }
    world.initialized -= 1;
    world.state.system.error("nvmlShutdown")
}

/// `nvmlErrorString`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: Code) -> *const c_char {
    let text = ERRORS.iter().find(|row| row.0 == code).map_or("Success\0", |row| row.2);
    CStr::from_bytes_with_nul(text.as_bytes()).map_or(std::ptr::null(), CStr::as_ptr)
}

/// Answers with a text of the system.
///
/// # Safety
/// `out` is null or has room for `length` bytes.
unsafe fn system_text(call: &str, key: &str, out: *mut c_char, length: c_uint) -> Code {
    let world = world::lock_world();
    let text = match world.system_error(call) {
        SUCCESS => world.state.system.text(key).ok_or(NOT_SUPPORTED),
        error => Err(error),
    };
    // SAFETY: the caller's promise.
    unsafe { put_text(out, length, text) }
}

/// `nvmlSystemGetDriverVersion`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> Code {
    // SAFETY: the caller's promise.
    unsafe { system_text("nvmlSystemGetDriverVersion", "driver", version, length) }
}

/// `nvmlSystemGetNVMLVersion`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) -> Code {
    // SAFETY: the caller's promise.
    unsafe { system_text("nvmlSystemGetNVMLVersion", "driver", version, length) }
}

fn cuda_version(world: &World) -> Result<c_int, Code> {
    world.state.system.number("cuda", 0.0).map(|version| version as c_int)
}

/// `nvmlSystemGetCudaDriverVersion`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion(version: *mut c_int) -> Code {
    // SAFETY: the caller's promise.
    unsafe { about_system("nvmlSystemGetCudaDriverVersion", version, cuda_version) }
}

/// `nvmlSystemGetCudaDriverVersion_v2`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> Code {
    // SAFETY: the caller's promise.
    unsafe { about_system("nvmlSystemGetCudaDriverVersion_v2", version, cuda_version) }
}

/// `nvmlSystemGetProcessName`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetProcessName(pid: c_uint, name: *mut c_char, length: c_uint) -> Code {
    let mut world = world::lock_world();
    let now = world.now();
    let found = match world.system_error("nvmlSystemGetProcessName") {
        SUCCESS => {
            let mut all = world.state.devices.iter().flat_map(|device| device.all_processes(now));
            all.find(|process| process.pid == pid).ok_or(NOT_FOUND).and_then(|process| process.name.ok_or(NOT_FOUND))
        }
        error => Err(error),
    };
    // SAFETY: the caller's promise.
    unsafe { put_text(name, length, found.as_deref().map_err(|code| *code)) }
}

/// `nvmlDeviceGetCount_v2`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> Code {
    // SAFETY: the caller's promise.
    unsafe { about_system("nvmlDeviceGetCount_v2", count, |world| Ok(world.state.devices.len() as c_uint)) }
}

/// `nvmlDeviceGetCount`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount(count: *mut c_uint) -> Code {
    // SAFETY: the caller's promise.
    unsafe { nvmlDeviceGetCount_v2(count) }
}

/// A handle, when the device may be spoken of at all.
fn checked_device(world: &World, call: &str, handle: Handle) -> Result<DevicePointer, Code> {
    world.device(call, handle.pointer()).map(|_| handle.pointer())
}

/// `nvmlDeviceGetHandleByIndex_v2`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut DevicePointer) -> Code {
    let world = world::lock_world();
    let handle = Handle { device: index as usize, instance: None };
    // SAFETY: the caller's promise.
    unsafe { put_answer(device, checked_device(&world, "nvmlDeviceGetHandleByIndex_v2", handle)) }
}

/// `nvmlDeviceGetHandleByIndex`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut DevicePointer) -> Code {
    // SAFETY: the caller's promise.
    unsafe { nvmlDeviceGetHandleByIndex_v2(index, device) }
}

/// The device or instance of which `text` is what `name_of` says.
///
/// # Safety
/// `text` is null or a C string, `out` is null or may be written.
unsafe fn handle_by(
    call: &str,
    text: *const c_char,
    out: *mut DevicePointer,
    name_of: impl Fn(&World, Handle) -> Option<String>,
) -> Code {
    let world = world::lock_world();
    if text.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: it is not null, and the caller's text ends with a zero.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let injected = world.system_error(call);
    let mut handles = world.handles();
    let found = handles.find(|handle| name_of(&world, *handle).is_some_and(|name| same_name(&name, &text)));
    let found = if injected == SUCCESS { found.ok_or(NOT_FOUND) } else { Err(injected) };
    // SAFETY: the caller's promise.
    unsafe { put_answer(out, found.and_then(|handle| checked_device(&world, call, handle))) }
}

/// Letters may be of either case, and a PCI domain of four or eight digits.
fn same_name(one: &str, other: &str) -> bool {
    one.trim_start_matches('0').eq_ignore_ascii_case(other.trim_start_matches('0'))
}

/// `nvmlDeviceGetHandleByUUID`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut DevicePointer) -> Code {
    // SAFETY: the caller's promise.
    unsafe {
        handle_by("nvmlDeviceGetHandleByUUID", uuid, device, |world, handle| Some(identity::uuid_text(world, handle)))
    }
}

/// `nvmlDeviceGetHandleByPciBusId_v2`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(bus: *const c_char, device: *mut DevicePointer) -> Code {
    // SAFETY: the caller's promise.
    unsafe {
        handle_by("nvmlDeviceGetHandleByPciBusId_v2", bus, device, |world, handle| {
            Some(identity::bus_id(world, handle))
        })
    }
}

/// `nvmlDeviceGetHandleByPciBusId`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId(bus: *const c_char, device: *mut DevicePointer) -> Code {
    // SAFETY: the caller's promise.
    unsafe { nvmlDeviceGetHandleByPciBusId_v2(bus, device) }
}
