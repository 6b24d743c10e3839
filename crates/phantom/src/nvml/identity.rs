//! Who a device is: name, UUID, index, PCI address. What a script does not name is numbered.

use std::ffi::{c_char, c_int, c_uint};

use super::abi::{Code, DevicePointer, INVALID_ARGUMENT, NOT_SUPPORTED, PciInfo, SUCCESS};
use super::answer::{fixed_text, put_answer, put_text};
use super::world::{self, Handle, World};

pub(super) const CALLS: &[&str] = &[
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetIndex",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetCudaComputeCapability",
];

/// The UUID: the script's, or one made of the index.
pub(super) fn uuid_text(world: &World, handle: Handle) -> String {
    let device = world.state.devices.get(handle.device);
    let instance = handle.instance.and_then(|index| device?.instances.as_ref()?.get(index));
    let kind = if handle.instance.is_some() { "MIG" } else { "GPU" };
    let given = if handle.instance.is_some() { instance } else { device }.and_then(|device| device.text("uuid"));
    let number = handle.instance.map_or(0, |instance| instance + 1);
    given.map_or_else(|| format!("{kind}-00000000-0000-0000-{number:04x}-{:012x}", handle.device), str::to_owned)
}

/// The PCI address: the script's, or bus `index + 1`.
pub(super) fn bus_id(world: &World, handle: Handle) -> String {
    let given = world.state.devices.get(handle.device).and_then(|device| device.text("pci"));
    given.map_or_else(|| format!("00000000:{:02X}:00.0", handle.device + 1), str::to_owned)
}

/// Answers with a text of the device.
///
/// # Safety
/// `out` is null or has room for `length` bytes.
unsafe fn device_text(
    call: &str,
    device: DevicePointer,
    (out, length): (*mut c_char, c_uint),
    compute: impl FnOnce(&World, Handle) -> Option<String>,
) -> Code {
    let world = world::lock_world();
    let text = world.device(call, device).and_then(|_| {
        let handle = Handle::of(device).ok_or(INVALID_ARGUMENT)?;
        compute(&world, handle).ok_or(NOT_SUPPORTED)
    });
    // SAFETY: the caller's promise.
    unsafe { put_text(out, length, text.as_deref().map_err(|code| *code)) }
}

/// `nvmlDeviceGetName`; an instance has its device's name and its own profile.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(device: DevicePointer, name: *mut c_char, length: c_uint) -> Code {
    let compute = |world: &World, handle: Handle| {
        let parent = world.state.devices.get(handle.device)?;
        let name = parent.text("name")?;
        let instance = handle.instance.and_then(|index| parent.instances.as_ref()?.get(index));
        let own = instance.and_then(|instance| instance.text("name")).map(str::to_owned);
        let profile = instance.and_then(|instance| instance.text("profile"));
        own.or_else(|| Some(profile.map_or_else(|| name.to_owned(), |profile| format!("{name} MIG {profile}"))))
    };
    // SAFETY: the caller's promise.
    unsafe { device_text("nvmlDeviceGetName", device, (name, length), compute) }
}

/// `nvmlDeviceGetUUID`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(device: DevicePointer, text: *mut c_char, length: c_uint) -> Code {
    // SAFETY: the caller's promise.
    unsafe { device_text("nvmlDeviceGetUUID", device, (text, length), |world, handle| Some(uuid_text(world, handle))) }
}

/// `nvmlDeviceGetSerial`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetSerial(device: DevicePointer, text: *mut c_char, length: c_uint) -> Code {
    let compute =
        |world: &World, handle: Handle| world.state.devices.get(handle.device)?.text("serial").map(str::to_owned);
    // SAFETY: the caller's promise.
    unsafe { device_text("nvmlDeviceGetSerial", device, (text, length), compute) }
}

/// Answers with what the handle itself says.
///
/// # Safety
/// `out` is null or may be written.
unsafe fn from_handle<T>(call: &str, device: DevicePointer, out: *mut T, compute: impl FnOnce(Handle) -> T) -> Code {
    let world = world::lock_world();
    let value = world.device(call, device).and_then(|_| Handle::of(device).ok_or(INVALID_ARGUMENT)).map(compute);
    // SAFETY: the caller's promise.
    unsafe { put_answer(out, value) }
}

/// `nvmlDeviceGetIndex`; an instance has its number among its device's.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetIndex(device: DevicePointer, index: *mut c_uint) -> Code {
    let compute = |handle: Handle| handle.instance.unwrap_or(handle.device) as c_uint;
    // SAFETY: the caller's promise.
    unsafe { from_handle("nvmlDeviceGetIndex", device, index, compute) }
}

/// `nvmlDeviceGetMinorNumber`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMinorNumber(device: DevicePointer, minor: *mut c_uint) -> Code {
    // SAFETY: the caller's promise.
    unsafe { from_handle("nvmlDeviceGetMinorNumber", device, minor, |handle| handle.device as c_uint) }
}

fn pci_info(address: &str) -> PciInfo {
    let mut parts = address.split([':', '.']).map(|part| c_uint::from_str_radix(part, 16).unwrap_or(0));
    let mut part = || parts.next().unwrap_or(0);
    PciInfo {
        // The old form has four digits of the domain.
        bus_id_legacy: fixed_text(address.get(4..).unwrap_or(address)),
        domain: part(),
        bus: part(),
        device: part(),
        pci_device_id: 0,
        pci_subsystem_id: 0,
        bus_id: fixed_text(address),
    }
}

/// `nvmlDeviceGetPciInfo_v3`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: DevicePointer, pci: *mut PciInfo) -> Code {
    let world = world::lock_world();
    let found =
        world.device("nvmlDeviceGetPciInfo_v3", device).and_then(|_| Handle::of(device).ok_or(INVALID_ARGUMENT));
    // SAFETY: the caller's promise.
    unsafe { put_answer(pci, found.map(|handle| pci_info(&bus_id(&world, handle)))) }
}

/// `nvmlDeviceGetCudaComputeCapability`, in the script `"compute_capability": "9.0"`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: DevicePointer,
    major: *mut c_int,
    minor: *mut c_int,
) -> Code {
    let world = world::lock_world();
    let parse = |text: &str| {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let found = world.device("nvmlDeviceGetCudaComputeCapability", device);
    let found = found.and_then(|device| device.text("compute_capability").and_then(parse).ok_or(NOT_SUPPORTED));
    match found {
        Ok((first, second)) => {
            // SAFETY: the caller's promise.
            let codes = unsafe { [put_answer(major, Ok(first)), put_answer(minor, Ok(second))] };
            codes.into_iter().find(|code| *code != SUCCESS).unwrap_or(SUCCESS)
        }
        Err(code) => code,
    }
}
