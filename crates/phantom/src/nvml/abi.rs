//! What `nvml.h` declares (CUDA 13 toolkit): return codes and the structures that calls fill.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

/// `nvmlReturn_t`.
pub type Code = c_int;
/// `NVML_SUCCESS`.
pub const SUCCESS: Code = 0;
/// `NVML_ERROR_UNINITIALIZED`.
pub const UNINITIALIZED: Code = 1;
/// `NVML_ERROR_INVALID_ARGUMENT`.
pub const INVALID_ARGUMENT: Code = 2;
/// `NVML_ERROR_NOT_SUPPORTED`.
pub const NOT_SUPPORTED: Code = 3;
/// `NVML_ERROR_NOT_FOUND`.
pub const NOT_FOUND: Code = 6;
/// `NVML_ERROR_INSUFFICIENT_SIZE`.
pub const INSUFFICIENT_SIZE: Code = 7;
/// `NVML_ERROR_TIMEOUT`.
pub const TIMEOUT: Code = 10;
/// `NVML_ERROR_ARGUMENT_VERSION_MISMATCH`.
pub const VERSION_MISMATCH: Code = 25;

/// `NVML_VALUE_NOT_AVAILABLE` of a process's memory.
pub const VALUE_NOT_AVAILABLE: u64 = u64::MAX;
/// An instance id where there is no MIG.
pub const NO_INSTANCE: u32 = u32::MAX;
/// `nvmlEventTypeXidCriticalError`.
pub const EVENT_XID: u64 = 8;

/// Every error: code, its name in a script, NVML's own words.
pub const ERRORS: &[(Code, &str, &str)] = &[
    (1, "uninitialized", "Uninitialized\0"),
    (2, "invalid_argument", "Invalid Argument\0"),
    (3, "not_supported", "Not Supported\0"),
    (4, "no_permission", "Insufficient Permissions\0"),
    (5, "already_initialized", "Already Initialized\0"),
    (6, "not_found", "Not Found\0"),
    (7, "insufficient_size", "Insufficient Size\0"),
    (8, "insufficient_power", "Insufficient External Power\0"),
    (9, "driver_not_loaded", "Driver Not Loaded\0"),
    (10, "timeout", "Timeout\0"),
    (11, "irq_issue", "Interrupt Request Issue\0"),
    (12, "library_not_found", "NVML Shared Library Not Found\0"),
    (13, "function_not_found", "Function Not Found\0"),
    (14, "corrupted_inforom", "Corrupted infoROM\0"),
    (15, "gpu_is_lost", "GPU is lost\0"),
    (16, "reset_required", "GPU requires restart\0"),
    (17, "operating_system", "The operating system has blocked the request.\0"),
    (18, "lib_rm_version_mismatch", "Driver/library version mismatch\0"),
    (19, "in_use", "In use by another client\0"),
    (20, "memory", "Insufficient Memory\0"),
    (21, "no_data", "No data\0"),
    (22, "vgpu_ecc_not_supported", "The requested vgpu operation is not available because ECC is enabled\0"),
    (23, "insufficient_resources", "Ran out of critical resources, other than memory\0"),
    (24, "freq_not_supported", "Requested frequency is not supported\0"),
    (25, "argument_version_mismatch", "Argument version mismatch\0"),
    (26, "deprecated", "The requested functionality has been deprecated\0"),
    (27, "not_ready", "The system is not ready for the request\0"),
    (28, "gpu_not_found", "No GPUs were found\0"),
    (29, "invalid_state", "Resource not in correct state to perform requested operation\0"),
    (30, "reset_type_not_supported", "Reset not supported for given device/parameters\0"),
    (999, "unknown", "Unknown Error\0"),
];

/// The code that a script calls `name`.
pub fn error_code(name: &str) -> Option<Code> {
    ERRORS.iter().find(|row| row.1 == name).map(|row| row.0)
}

/// `nvmlDevice_t`: to the caller a pointer, here a number (`world::Handle`).
pub type DevicePointer = *mut c_void;

/// `nvmlMemory_t`.
#[repr(C)]
pub struct Memory {
    pub total: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub struct MemoryV2 {
    pub version: c_uint,
    pub total: c_ulonglong,
    pub reserved: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

/// `nvmlTemperature_v1_t`.
#[repr(C)]
pub struct Temperature {
    pub version: c_uint,
    pub sensor_type: c_uint,
    pub temperature: c_int,
}

/// `nvmlUtilization_t`.
#[repr(C)]
pub struct Utilization {
    pub gpu: c_uint,
    pub memory: c_uint,
}

/// `nvmlPciInfo_t` of the third version.
#[repr(C)]
pub struct PciInfo {
    pub bus_id_legacy: [c_char; 16],
    pub domain: c_uint,
    pub bus: c_uint,
    pub device: c_uint,
    pub pci_device_id: c_uint,
    pub pci_subsystem_id: c_uint,
    pub bus_id: [c_char; 32],
}

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
pub struct ProcessInfoV1 {
    pub pid: c_uint,
    pub used_gpu_memory: c_ulonglong,
}

/// `nvmlProcessInfo_v2_t`, which the third version of the calls fills too.
#[repr(C)]
pub struct ProcessInfo {
    pub pid: c_uint,
    pub used_gpu_memory: c_ulonglong,
    pub gpu_instance_id: c_uint,
    pub compute_instance_id: c_uint,
}

/// `nvmlProcessUtilizationSample_t`.
#[repr(C)]
pub struct ProcessUtilization {
    pub pid: c_uint,
    pub time_stamp: c_ulonglong,
    pub sm_util: c_uint,
    pub mem_util: c_uint,
    pub enc_util: c_uint,
    pub dec_util: c_uint,
}

/// `nvmlEventData_t`.
#[repr(C)]
pub struct EventData {
    pub device: DevicePointer,
    pub event_type: c_ulonglong,
    pub event_data: c_ulonglong,
    pub gpu_instance_id: c_uint,
    pub compute_instance_id: c_uint,
}

const _: () = {
    assert!(size_of::<Memory>() == 24);
    assert!(size_of::<MemoryV2>() == 40);
    assert!(size_of::<Temperature>() == 12);
    assert!(size_of::<Utilization>() == 8);
    assert!(size_of::<PciInfo>() == 68);
    assert!(size_of::<ProcessInfoV1>() == 16);
    assert!(size_of::<ProcessInfo>() == 24);
    assert!(size_of::<ProcessUtilization>() == 32);
    assert!(size_of::<EventData>() == 32);
};
