//! Lists of processes in the three layouts of `nvmlProcessInfo_t`, and what each does with the multiprocessors.
//!
//! A call without room says how many there are; processes that the script calls late are only there when the caller comes
//! back with room, as processes that start between the two calls are.

use std::ffi::{c_uint, c_ulonglong};

use super::abi::{
    Code, DevicePointer, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_SUPPORTED, ProcessInfo, ProcessInfoV1,
    ProcessUtilization, SUCCESS,
};
use super::device::{Process, ProcessKind};
use super::world;

/// One list in one layout of its structure.
macro_rules! lists {
    ($($call:ident: $kind:ident as $row:ty;)*) => {
        pub(super) const CALLS: &[&str] = &["nvmlDeviceGetProcessUtilization", $(stringify!($call)),*];
        $(
            #[doc = concat!("`", stringify!($call), "`.")]
            ///
            /// # Safety
            /// As `nvml.h` says.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $call(device: DevicePointer, count: *mut c_uint, infos: *mut $row) -> Code {
                // SAFETY: the caller's promise.
                unsafe { list_processes(stringify!($call), device, ProcessKind::$kind, count, infos) }
            }
        )*
    };
}

lists! {
    nvmlDeviceGetComputeRunningProcesses: Compute as ProcessInfoV1;
    nvmlDeviceGetComputeRunningProcesses_v2: Compute as ProcessInfo;
    nvmlDeviceGetComputeRunningProcesses_v3: Compute as ProcessInfo;
    nvmlDeviceGetGraphicsRunningProcesses: Graphics as ProcessInfoV1;
    nvmlDeviceGetGraphicsRunningProcesses_v2: Graphics as ProcessInfo;
    nvmlDeviceGetGraphicsRunningProcesses_v3: Graphics as ProcessInfo;
    nvmlDeviceGetMPSComputeRunningProcesses: Mps as ProcessInfoV1;
    nvmlDeviceGetMPSComputeRunningProcesses_v2: Mps as ProcessInfo;
    nvmlDeviceGetMPSComputeRunningProcesses_v3: Mps as ProcessInfo;
}

impl From<&Process> for ProcessInfoV1 {
    fn from(process: &Process) -> Self {
        Self { pid: process.pid, used_gpu_memory: process.used }
    }
}

impl From<&Process> for ProcessInfo {
    fn from(process: &Process) -> Self {
        Self {
            pid: process.pid,
            used_gpu_memory: process.used,
            gpu_instance_id: process.gpu_instance,
            compute_instance_id: process.compute_instance,
        }
    }
}

/// Fills a list.
///
/// # Safety
/// `count` is null or may be read and written, and `infos` is null or has room for `*count` rows.
unsafe fn list_processes<Row: for<'a> From<&'a Process>>(
    call: &str,
    device: DevicePointer,
    kind: ProcessKind,
    count: *mut c_uint,
    infos: *mut Row,
) -> Code {
    let mut world = world::lock_world();
    let now = world.now();
    let late = !infos.is_null();
    let found = world.device(call, device).and_then(|device| device.processes(kind, now, late));
    // SAFETY: the caller's promise.
    unsafe { fill_rows(found, count, infos, |process| process.into()) }
}

/// Writes rows where there is room for all, otherwise how many there are.
///
/// # Safety
/// As of [`list`].
unsafe fn fill_rows<T, Row>(
    found: Result<Vec<T>, Code>,
    count: *mut c_uint,
    rows: *mut Row,
    row: impl Fn(&T) -> Row,
) -> Code {
    let found = match found {
        Ok(_) if count.is_null() => return INVALID_ARGUMENT,
        Ok(found) => found,
        Err(code) => return code,
    };
    // SAFETY: it is not null, and the caller has set it.
    let room = unsafe { count.replace(found.len() as c_uint) } as usize;
    if found.is_empty() {
        return SUCCESS;
    }
    if rows.is_null() || room < found.len() {
        return INSUFFICIENT_SIZE;
    }
    for (index, item) in found.iter().enumerate() {
        // SAFETY: there is room for `room` rows, and `index` is below.
        unsafe { rows.add(index).write(row(item)) };
    }
    SUCCESS
}

/// `nvmlDeviceGetProcessUtilization`: those of which the script says what they do.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    device: DevicePointer,
    samples: *mut ProcessUtilization,
    count: *mut c_uint,
    _since: c_ulonglong,
) -> Code {
    let mut world = world::lock_world();
    let now = world.now();
    let found = world.device("nvmlDeviceGetProcessUtilization", device).and_then(|device| {
        let mut all = device.all_processes(now);
        all.retain(|process| process.sm.is_some());
        if all.is_empty() { Err(NOT_SUPPORTED) } else { Ok(all) }
    });
    let row = |process: &Process| ProcessUtilization {
        pid: process.pid,
        time_stamp: (now * 1e6) as c_ulonglong,
        sm_util: process.sm.unwrap_or(0),
        mem_util: process.memory.unwrap_or(0),
        enc_util: 0,
        dec_util: 0,
    };
    // SAFETY: the caller's promise.
    unsafe { fill_rows(found, count, samples, row) }
}
