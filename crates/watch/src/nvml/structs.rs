//! The structures of `nvml.h` (CUDA 13) that calls fill.

use std::ffi::{c_char, c_uint, c_ulonglong};

/// A handle on a device: to NVML a pointer, to others a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Device(pub(super) usize);

/// `NVML_VALUE_NOT_AVAILABLE` of a process's memory.
pub(super) const VALUE_NOT_AVAILABLE: u64 = u64::MAX;
/// `NVML_STRUCT_VERSION(Memory, 2)`.
pub(super) const MEMORY_V2: c_uint = size_of::<MemoryV2>() as c_uint | 2 << 24;

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct MemoryV1 {
    pub total: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct MemoryV2 {
    pub version: c_uint,
    pub total: c_ulonglong,
    pub reserved: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Utilization {
    pub gpu: c_uint,
    pub memory: c_uint,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct PciInfo {
    pub bus_id_legacy: [c_char; 16],
    pub numbers: [c_uint; 5],
    pub bus_id: [c_char; 32],
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct ProcessInfoV1 {
    pub pid: c_uint,
    pub used: c_ulonglong,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct ProcessInfo {
    pub pid: c_uint,
    pub used: c_ulonglong,
    pub gpu_instance: c_uint,
    pub compute_instance: c_uint,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct ProcessUtilization {
    pub pid: c_uint,
    pub time_stamp: c_ulonglong,
    pub sm: c_uint,
    pub memory: c_uint,
    pub encoder: c_uint,
    pub decoder: c_uint,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct EventData {
    pub device: Device,
    pub kind: c_ulonglong,
    pub data: c_ulonglong,
    pub gpu_instance: c_uint,
    pub compute_instance: c_uint,
}

const _: () = {
    assert!(size_of::<MemoryV1>() == 24);
    assert!(size_of::<MemoryV2>() == 40);
    assert!(size_of::<Utilization>() == 8);
    assert!(size_of::<PciInfo>() == 68);
    assert!(size_of::<ProcessInfoV1>() == 16);
    assert!(size_of::<ProcessInfo>() == 24);
    assert!(size_of::<ProcessUtilization>() == 32);
    assert!(size_of::<EventData>() == 32);
};
