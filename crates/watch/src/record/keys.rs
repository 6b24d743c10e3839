//! The numbers that a line can give of a device: key, NVML's call, and where it stands in a sample.

use crate::absent::Reading;
use crate::sample::DeviceSample;

pub(super) struct NumberKey {
    /// In the script.
    pub key: &'static str,
    /// The call that reads it, of which an error is told.
    pub call: &'static str,
    pub get: fn(&DeviceSample) -> Reading<f64>,
    pub set: fn(&mut DeviceSample, Reading<f64>),
}

/// The call that reads total, reserved and used bytes.
pub(super) const MEMORY_CALL: &str = "nvmlDeviceGetMemoryInfo_v2";
/// The call that lists processes.
pub(super) const PROCESSES_CALL: &str = "nvmlDeviceGetComputeRunningProcesses_v3";
/// The call that says whether a device is split.
pub(super) const MIG_CALL: &str = "nvmlDeviceGetMigMode";

macro_rules! number {
    ($key:literal, $call:literal, $field:ident, $type:ty) => {
        NumberKey {
            key: $key,
            call: $call,
            get: |device| device.$field.map(|value| value as f64),
            set: |device, value| device.$field = value.map(|value| value as $type),
        }
    };
}

pub(super) const NUMBERS: &[NumberKey] = &[
    number!("utilization", "nvmlDeviceGetUtilizationRates", utilization, u32),
    number!("memory_utilization", "nvmlDeviceGetUtilizationRates", memory_utilization, u32),
    number!("temperature", "nvmlDeviceGetTemperature", temperature, u32),
    number!("fan", "nvmlDeviceGetFanSpeed", fan, u32),
    number!("power", "nvmlDeviceGetPowerUsage", power, f64),
    number!("power_limit", "nvmlDeviceGetEnforcedPowerLimit", power_limit, f64),
    number!("energy", "nvmlDeviceGetTotalEnergyConsumption", energy, f64),
    number!("sm_clock", "nvmlDeviceGetClockInfo", sm_clock, u32),
    number!("memory_clock", "nvmlDeviceGetClockInfo", memory_clock, u32),
    number!("throttle", "nvmlDeviceGetCurrentClocksEventReasons", throttle, u64),
    number!("ecc_uncorrected", "nvmlDeviceGetTotalEccErrors", ecc_uncorrected, u64),
    NumberKey {
        key: "remapped_pending",
        call: "nvmlDeviceGetRemappedRows",
        get: |device| device.remap_pending.map(f64::from),
        set: |device, value| device.remap_pending = value.map(|value| value != 0.0),
    },
];
