//! Event sets: the Xids of the script, handed to whoever registered for them before they happened.

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::abi::{Code, DevicePointer, EVENT_XID, EventData, INVALID_ARGUMENT, NO_INSTANCE, SUCCESS, TIMEOUT};
use super::answer::{about_device, put_answer};
use super::world::{self, Handle};

pub(super) const CALLS: &[&str] = &[
    "nvmlEventSetCreate",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetWait_v2",
    "nvmlEventSetFree",
];

/// How often a waiting call looks.
const LOOK: Duration = Duration::from_millis(5);

/// The sets by number, each with its devices and the time up to which their Xids were told.
static SETS: Mutex<Vec<Vec<(usize, f64)>>> = Mutex::new(Vec::new());

fn with_set<T>(set: *mut c_void, f: impl FnOnce(&mut Vec<(usize, f64)>) -> T) -> Option<T> {
    let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    let index = (set.addr() / 0x10).checked_sub(1)?;
    sets.get_mut(index).map(f)
}

/// `nvmlEventSetCreate`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetCreate(set: *mut *mut c_void) -> Code {
    let error = world::lock_world().system_error("nvmlEventSetCreate");
    if error != SUCCESS {
        return error;
    }
    let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    sets.push(Vec::new());
    // SAFETY: the caller's promise.
    unsafe { put_answer(set, Ok(std::ptr::without_provenance_mut(sets.len() * 0x10))) }
}

/// `nvmlDeviceGetSupportedEventTypes`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetSupportedEventTypes(device: DevicePointer, types: *mut c_ulonglong) -> Code {
    // SAFETY: the caller's promise.
    unsafe { about_device("nvmlDeviceGetSupportedEventTypes", device, types, |_, _| Ok(EVENT_XID)) }
}

/// `nvmlDeviceRegisterEvents`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceRegisterEvents(device: DevicePointer, _types: c_ulonglong, set: *mut c_void) -> Code {
    let mut world = world::lock_world();
    let now = world.now();
    if let Err(code) = world.device("nvmlDeviceRegisterEvents", device) {
        return code;
    }
    let Some(handle) = Handle::of(device) else { return INVALID_ARGUMENT };
    with_set(set, |devices| devices.push((handle.device, now))).map_or(INVALID_ARGUMENT, |()| SUCCESS)
}

/// The next Xid that a set was not told of.
fn next_event(set: *mut c_void) -> Result<Option<EventData>, Code> {
    let world = world::lock_world();
    let error = world.system_error("nvmlEventSetWait_v2");
    if error != SUCCESS {
        return Err(error);
    }
    let devices = &world.state.devices;
    let find = |registered: &mut Vec<(usize, f64)>| {
        registered.iter_mut().find_map(|(index, told)| {
            let (time, xid) = *devices.get(*index)?.xids.iter().find(|(time, _)| time > told)?;
            *told = time;
            Some(EventData {
                device: Handle { device: *index, instance: None }.pointer(),
                event_type: EVENT_XID,
                event_data: xid,
                gpu_instance_id: NO_INSTANCE,
                compute_instance_id: NO_INSTANCE,
            })
        })
    };
    with_set(set, find).ok_or(INVALID_ARGUMENT)
}

/// `nvmlEventSetWait_v2`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetWait_v2(set: *mut c_void, data: *mut EventData, milliseconds: c_uint) -> Code {
    let until = Instant::now() + Duration::from_millis(milliseconds.into());
    loop {
        match next_event(set) {
            // SAFETY: the caller's promise.
            Ok(Some(event)) => return unsafe { put_answer(data, Ok(event)) },
            Ok(None) if Instant::now() >= until || !world::lock_world().time_passes() => return TIMEOUT,
            Ok(None) => std::thread::sleep(LOOK),
            Err(code) => return code,
        }
    }
}

/// `nvmlEventSetWait`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetWait(set: *mut c_void, data: *mut EventData, milliseconds: c_uint) -> Code {
    // SAFETY: the caller's promise; the structure only grew at its end in the same size.
    unsafe { nvmlEventSetWait_v2(set, data, milliseconds) }
}

/// `nvmlEventSetFree`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(set: *mut c_void) -> Code {
    let error = world::lock_world().system_error("nvmlEventSetFree");
    with_set(set, Vec::clear).map_or(INVALID_ARGUMENT, |()| error)
}
