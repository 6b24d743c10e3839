//! Calls that return a number of the script: utilization, temperature, power, clocks, errors of memory.

use std::ffi::{c_int, c_uint, c_ulonglong};

use super::abi::{Code, DevicePointer, INVALID_ARGUMENT, Temperature, Utilization, VERSION_MISMATCH};
use super::answer::about_device;
use super::device::Device;

/// Calls that write the number under a key, times a factor.
macro_rules! readings {
    ($($call:ident($($argument:ident: $kind:ty),*) -> $type:ty = $key:literal * $factor:literal;)*) => {
        const NUMBERS: &[&str] = &[$(stringify!($call)),*];
        $(
            #[doc = concat!("`", stringify!($call), "`: `", $key, "` of the script.")]
            ///
            /// # Safety
            /// As `nvml.h` says.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $call(device: DevicePointer, $($argument: $kind,)* out: *mut $type) -> Code {
                let compute = |device: &Device, now| Ok((device.number($key, now)? * $factor) as $type);
                // SAFETY: the caller's promise.
                unsafe { about_device(stringify!($call), device, out, compute) }
            }
        )*
    };
}

readings! {
    nvmlDeviceGetTemperature(_sensor: c_uint) -> c_uint = "temperature" * 1.0;
    nvmlDeviceGetFanSpeed() -> c_uint = "fan" * 1.0;
    nvmlDeviceGetPowerUsage() -> c_uint = "power" * 1000.0;
    nvmlDeviceGetEnforcedPowerLimit() -> c_uint = "power_limit" * 1000.0;
    nvmlDeviceGetPowerManagementLimit() -> c_uint = "power_limit" * 1000.0;
    nvmlDeviceGetTotalEnergyConsumption() -> c_ulonglong = "energy" * 1000.0;
    nvmlDeviceGetCurrentClocksEventReasons() -> c_ulonglong = "throttle" * 1.0;
    nvmlDeviceGetCurrentClocksThrottleReasons() -> c_ulonglong = "throttle" * 1.0;
    nvmlDeviceGetPerformanceState() -> c_int = "performance_state" * 1.0;
    nvmlDeviceGetPersistenceMode() -> c_int = "persistence" * 1.0;
    nvmlDeviceGetComputeMode() -> c_int = "compute_mode" * 1.0;
    nvmlDeviceGetDisplayActive() -> c_int = "display_active" * 1.0;
    nvmlDeviceGetDisplayMode() -> c_int = "display_mode" * 1.0;
    nvmlDeviceGetNumGpuCores() -> c_uint = "cores" * 1.0;
}

pub(super) const CALLS: &[&str] = &{
    let mut calls = [""; NUMBERS.len() + OTHERS.len()];
    let mut index = 0;
    while index < calls.len() {
        calls[index] = if index < NUMBERS.len() { NUMBERS[index] } else { OTHERS[index - NUMBERS.len()] };
        index += 1;
    }
    calls
};

const OTHERS: &[&str] = &[
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetTemperatureThreshold",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetDecoderUtilization",
];

/// `nvmlDeviceGetUtilizationRates`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(device: DevicePointer, out: *mut Utilization) -> Code {
    let compute = |device: &Device, now| {
        let percent = |key| device.number(key, now).map(|percent| percent as c_uint);
        Ok(Utilization { gpu: percent("utilization")?, memory: percent("memory_utilization")? })
    };
    // SAFETY: the caller's promise.
    unsafe { about_device("nvmlDeviceGetUtilizationRates", device, out, compute) }
}

/// `NVML_STRUCT_VERSION(Temperature, 1)`.
const TEMPERATURE_V1: u32 = size_of::<Temperature>() as u32 | 1 << 24;

/// `nvmlDeviceGetTemperatureV`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperatureV(device: DevicePointer, out: *mut Temperature) -> Code {
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: it is not null; the caller has set version and sensor.
    let (version, sensor_type) = unsafe { ((*out).version, (*out).sensor_type) };
    if version != TEMPERATURE_V1 {
        return VERSION_MISMATCH;
    }
    let compute = |device: &Device, now| {
        Ok(Temperature { version, sensor_type, temperature: device.number("temperature", now)? as c_int })
    };
    // SAFETY: the caller's promise.
    unsafe { about_device("nvmlDeviceGetTemperatureV", device, out, compute) }
}

/// The keys of `nvmlClockType_t`: graphics, SM, memory, video.
const CLOCKS: [&str; 4] = ["graphics_clock", "sm_clock", "memory_clock", "video_clock"];
const MAX_CLOCKS: [&str; 4] = ["max_graphics_clock", "max_sm_clock", "max_memory_clock", "max_video_clock"];

/// The number under one key of several, which the caller chooses.
///
/// # Safety
/// `out` is null or may be written.
unsafe fn chosen_clock<T>(
    call: &str,
    device: DevicePointer,
    key: Option<&&str>,
    out: *mut T,
    convert: impl Fn(f64) -> T,
) -> Code {
    let compute = |device: &Device, now| device.number(key.ok_or(INVALID_ARGUMENT)?, now).map(convert);
    // SAFETY: the caller's promise.
    unsafe { about_device(call, device, out, compute) }
}

/// `nvmlDeviceGetClockInfo`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetClockInfo(device: DevicePointer, clock: c_uint, out: *mut c_uint) -> Code {
    // SAFETY: the caller's promise.
    unsafe { chosen_clock("nvmlDeviceGetClockInfo", device, CLOCKS.get(clock as usize), out, |mhz| mhz as c_uint) }
}

/// `nvmlDeviceGetMaxClockInfo`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(device: DevicePointer, clock: c_uint, out: *mut c_uint) -> Code {
    // SAFETY: the caller's promise.
    unsafe {
        chosen_clock("nvmlDeviceGetMaxClockInfo", device, MAX_CLOCKS.get(clock as usize), out, |mhz| mhz as c_uint)
    }
}

/// The keys of `nvmlTemperatureThresholds_t` that are scripted: shutdown, slowdown.
const THRESHOLDS: [&str; 2] = ["shutdown_temperature", "slowdown_temperature"];

/// `nvmlDeviceGetTemperatureThreshold`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperatureThreshold(
    device: DevicePointer,
    which: c_uint,
    out: *mut c_uint,
) -> Code {
    let key = THRESHOLDS.get(which as usize);
    // SAFETY: the caller's promise.
    unsafe { chosen_clock("nvmlDeviceGetTemperatureThreshold", device, key, out, |celsius| celsius as c_uint) }
}

/// The keys of `nvmlMemoryErrorType_t`: corrected, uncorrected.
const ECC: [&str; 2] = ["ecc_corrected", "ecc_uncorrected"];

/// `nvmlDeviceGetTotalEccErrors`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: DevicePointer,
    error: c_uint,
    _counter: c_uint,
    out: *mut c_ulonglong,
) -> Code {
    // SAFETY: the caller's promise.
    unsafe {
        chosen_clock("nvmlDeviceGetTotalEccErrors", device, ECC.get(error as usize), out, |count| count as c_ulonglong)
    }
}

/// `nvmlDeviceGetRemappedRows`: corrected, uncorrected, whether some are pending, whether some failed. A script that says
/// whether some are pending need not give the others, which are then none.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetRemappedRows(
    device: DevicePointer,
    corrected: *mut c_uint,
    uncorrected: *mut c_uint,
    pending: *mut c_uint,
    failed: *mut c_uint,
) -> Code {
    let outs = [corrected, uncorrected, pending, failed];
    let keys = ["remapped_corrected", "remapped_uncorrected", "remapped_pending", "remapped_failed"];
    let write = |(out, key): (*mut c_uint, &'static str)| {
        let compute = |device: &Device, now| {
            let pending = device.number("remapped_pending", now)?;
            Ok(device.number(key, now).unwrap_or(if key == "remapped_pending" { pending } else { 0.0 }) as c_uint)
        };
        // SAFETY: the caller's promise.
        unsafe { about_device("nvmlDeviceGetRemappedRows", device, out, compute) }
    };
    outs.into_iter().zip(keys).map(write).find(|code| *code != 0).unwrap_or(0)
}

/// A percentage and its sampling period in microseconds.
///
/// # Safety
/// The pointers are null or may be written.
unsafe fn with_period(
    (call, key): (&str, &str),
    device: DevicePointer,
    percent: *mut c_uint,
    period: *mut c_uint,
) -> Code {
    // SAFETY: the caller's promise.
    let code = unsafe { about_device(call, device, percent, |device, now| Ok(device.number(key, now)? as c_uint)) };
    if code != 0 {
        return code;
    }
    // SAFETY: the caller's promise.
    unsafe { super::answer::put_answer(period, Ok(1_000_000)) }
}

/// `nvmlDeviceGetEncoderUtilization`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetEncoderUtilization(
    device: DevicePointer,
    percent: *mut c_uint,
    period: *mut c_uint,
) -> Code {
    // SAFETY: the caller's promise.
    unsafe { with_period(("nvmlDeviceGetEncoderUtilization", "encoder"), device, percent, period) }
}

/// `nvmlDeviceGetDecoderUtilization`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetDecoderUtilization(
    device: DevicePointer,
    percent: *mut c_uint,
    period: *mut c_uint,
) -> Code {
    // SAFETY: the caller's promise.
    unsafe { with_period(("nvmlDeviceGetDecoderUtilization", "decoder"), device, percent, period) }
}
