//! The calls of [`Library`] about processes: lists that may grow between two calls, and structures that grew with the
//! driver, the newest that it has first.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use tonnage_core::small_sort::SmallSort;

use super::library::{Library, read_text};
use super::structs::{Device, ProcessInfo, ProcessInfoV1, ProcessUtilization, VALUE_NOT_AVAILABLE};
use crate::absent::{Absent, Reading};

/// A process's name with its path.
const NAME_SIZE: usize = 1024;
/// How often a list may have grown between two calls before it is given up.
const TRIES: usize = 5;

type ListCall<T> = unsafe extern "C" fn(Device, *mut c_uint, *mut T) -> c_int;

/// A process on a list.
pub(super) struct Listed {
    pub pid: u32,
    pub memory: Reading<u64>,
}

impl Library {
    /// Those who compute, draw, or are clients of the multi-process service; `stem` is the call without its version.
    pub(super) fn processes(&self, stem: &str, device: Device) -> Reading<Vec<Listed>> {
        let listed = |pid, used| Listed { pid, memory: if_available(used) };
        for version in ["_v3\0", "_v2\0"] {
            let name = format!("{stem}{version}");
            let name = CStr::from_bytes_with_nul(name.as_bytes()).map_err(|_| Absent::UNKNOWN)?;
            // SAFETY: versions 2 and 3 of the three calls have this type.
            match unsafe { self.symbol::<ListCall<ProcessInfo>>(name) } {
                Ok(call) => {
                    let rows = read_list(
                        // SAFETY: pointer and count are of the same rows.
                        |count, rows| unsafe { call(device, count, rows) },
                    )?;
                    return Ok(rows.iter().map(|row: &ProcessInfo| listed(row.pid, row.used)).collect());
                }
                Err(_) => continue,
            }
        }
        let name = format!("{stem}\0");
        let name = CStr::from_bytes_with_nul(name.as_bytes()).map_err(|_| Absent::UNKNOWN)?;
        // SAFETY: version 1 of the three calls has this type.
        let call = unsafe { self.symbol::<ListCall<ProcessInfoV1>>(name)? };
        // SAFETY: pointer and count are of the same rows.
        let rows = read_list(|count, rows| unsafe { call(device, count, rows) })?;
        Ok(rows.iter().map(|row: &ProcessInfoV1| listed(row.pid, row.used)).collect())
    }

    /// Per cent of the multiprocessors by process, of samples after `since` (microseconds).
    pub(super) fn process_utilization(&self, device: Device, since: u64) -> Reading<Vec<(u32, u32)>> {
        type Call = unsafe extern "C" fn(Device, *mut ProcessUtilization, *mut c_uint, c_ulonglong) -> c_int;
        // SAFETY: `nvmlDeviceGetProcessUtilization` has this type.
        let call = unsafe { self.symbol::<Call>(c"nvmlDeviceGetProcessUtilization")? };
        // SAFETY: pointer and count are of the same rows.
        let mut rows: Vec<ProcessUtilization> = read_list(|count, rows| unsafe { call(device, rows, count, since) })?;
        rows.small_sort_by_key(|row| row.time_stamp);
        Ok(rows.iter().map(|row| (row.pid, row.sm)).collect())
    }

    /// What the driver calls a process.
    pub fn process_name(&self, pid: u32) -> Reading<String> {
        type Call = unsafe extern "C" fn(c_uint, *mut c_char, c_uint) -> c_int;
        // SAFETY: `nvmlSystemGetProcessName` has this type.
        let call = unsafe { self.symbol::<Call>(c"nvmlSystemGetProcessName")? };
        // SAFETY: the buffer has the length that is told.
        read_text::<NAME_SIZE>(|buffer, length| unsafe { call(pid, buffer, length) })
    }
}

fn if_available(used: u64) -> Reading<u64> {
    if used == VALUE_NOT_AVAILABLE { Err(Absent::NOT_SUPPORTED) } else { Ok(used) }
}

/// The rows of a list that may grow between being asked for its size and being filled.
fn read_list<T: Default + Copy>(call: impl Fn(*mut c_uint, *mut T) -> c_int) -> Reading<Vec<T>> {
    let mut count = 0;
    let mut code = call(&raw mut count, std::ptr::null_mut());
    for _ in 0..TRIES {
        match code {
            0 if count == 0 => return Ok(Vec::new()),
            0 | 7 => {}
            other => return Err(Absent(other)),
        }
        // Room to grow, and a bound on what a broken driver may claim.
        let room = (count as usize).saturating_mul(2).saturating_add(8).min(1 << 16);
        let mut rows = vec![T::default(); room];
        count = room as c_uint;
        code = call(&raw mut count, rows.as_mut_ptr());
        if code == 0 {
            rows.truncate(count as usize);
            return Ok(rows);
        }
    }
    Err(Absent(code))
}
