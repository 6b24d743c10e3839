//! Memory of a device: total, reserved by the driver, used, free. Without `used` in the script it is what processes have.

use std::mem::offset_of;

use super::abi::{
    Code, DevicePointer, INVALID_ARGUMENT, Memory, MemoryV2, NOT_SUPPORTED, VALUE_NOT_AVAILABLE, VERSION_MISMATCH,
};
use super::answer::about_device;
use super::device::Device;

pub(super) const CALLS: &[&str] =
    &["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetBAR1MemoryInfo"];

/// `NVML_STRUCT_VERSION(Memory, 2)`: the size, and the version in the high byte.
const MEMORY_V2: u32 = size_of::<MemoryV2>() as u32 | 2 << 24;

/// Total, reserved and used bytes.
fn memory_info(device: &Device, now: f64) -> Result<(u64, u64, u64), Code> {
    let total = device.number("total", now)?;
    let reserved = device.number("reserved", now).unwrap_or(0.0);
    let has_processes = device.is_given("processes") || device.is_given("processes_late");
    let used = match device.number("used", now) {
        Ok(used) => used,
        Err(_) if device.is_given("used") || !has_processes => return Err(NOT_SUPPORTED),
        Err(_) => of_processes(device, now),
    };
    Ok((total as u64, reserved as u64, used.min(total) as u64))
}

fn of_processes(device: &Device, now: f64) -> f64 {
    let known = device.all_processes(now).into_iter().filter(|process| process.used != VALUE_NOT_AVAILABLE);
    known.map(|process| process.used as f64).sum()
}

/// `nvmlDeviceGetMemoryInfo`: what the driver keeps counts as used.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: DevicePointer, out: *mut Memory) -> Code {
    let compute = |device: &Device, now| {
        let (total, reserved, used) = memory_info(device, now)?;
        let used = (used + reserved).min(total);
        Ok(Memory { total, free: total - used, used })
    };
    // SAFETY: the caller's promise.
    unsafe { about_device("nvmlDeviceGetMemoryInfo", device, out, compute) }
}

/// `nvmlDeviceGetMemoryInfo_v2`: what the driver keeps is a figure of its own.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: DevicePointer, out: *mut MemoryV2) -> Code {
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: it is not null; the version is the first field, which the caller has set.
    let version = unsafe { out.byte_add(offset_of!(MemoryV2, version)).cast::<u32>().read() };
    if version != MEMORY_V2 {
        return VERSION_MISMATCH;
    }
    let compute = |device: &Device, now| {
        let (total, reserved, used) = memory_info(device, now)?;
        Ok(MemoryV2 { version, total, reserved, free: total.saturating_sub(used + reserved), used })
    };
    // SAFETY: the caller's promise.
    unsafe { about_device("nvmlDeviceGetMemoryInfo_v2", device, out, compute) }
}

/// `nvmlDeviceGetBAR1MemoryInfo`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetBAR1MemoryInfo(device: DevicePointer, out: *mut Memory) -> Code {
    let compute = |device: &Device, now| {
        let total = device.number("bar1_total", now)? as u64;
        let used = (device.number("bar1_used", now)? as u64).min(total);
        Ok(Memory { total, free: total - used, used })
    };
    // SAFETY: the caller's promise.
    unsafe { about_device("nvmlDeviceGetBAR1MemoryInfo", device, out, compute) }
}
