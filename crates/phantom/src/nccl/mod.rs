//! NCCL for the ranks of one machine: communicators know their size and rank, collectives (`collectives`) return at once.
//! The real library's own buffers are not counted: their sizes depend on topology and are not documented. Windows into
//! other ranks' memory are refused, because that memory does not exist. Version and texts come from the real library, which
//! needs no device for them.
#![allow(non_snake_case)]

mod collectives;

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::accepted::{accepted, handled, refused};
use crate::boundary::{Slot, put_if_wanted};
use crate::state;

/// `ncclResult_t`.
const UNHANDLED_CUDA_ERROR: c_int = 1;
const INVALID_ARGUMENT: c_int = 4;
const INVALID_USAGE: c_int = 5;
/// `ncclUniqueId`.
#[repr(C)]
struct UniqueId([u8; 128]);
/// A rank that is in no part of a split.
const NO_COLOR: c_int = -1;

#[derive(Clone, Copy)]
struct Communicator {
    ranks: c_int,
    rank: c_int,
    device: usize,
}

static COMMUNICATORS: Mutex<BTreeMap<usize, Communicator>> = Mutex::new(BTreeMap::new());

fn lock_communicators() -> MutexGuard<'static, BTreeMap<usize, Communicator>> {
    COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn communicator_of(handle: usize) -> Result<Communicator, c_int> {
    lock_communicators().get(&handle).copied().ok_or(INVALID_ARGUMENT)
}

fn status_code(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let mut bytes = [0; 128];
    bytes[..16].copy_from_slice(&since.to_le_bytes());
    bytes[16..20].copy_from_slice(&std::process::id().to_le_bytes());
    // SAFETY: a place for the identifier by the API's contract.
    match unsafe { Slot::new(id) } {
        Ok(place) => {
            place.put(UniqueId(bytes));
            0
        }
        Err(_) => INVALID_ARGUMENT,
    }
}

/// # Safety
/// `handle` is null or a place for a handle.
unsafe fn join_ranks(handle: *mut usize, ranks: c_int, rank: c_int, device: Option<usize>) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    let place = unsafe { Slot::new(handle) }.map_err(|_| INVALID_ARGUMENT)?;
    if ranks < 1 || !(0..ranks).contains(&rank) {
        return Err(INVALID_ARGUMENT);
    }
    let device = device.map_or_else(state::current_device, Ok).map_err(|_| UNHANDLED_CUDA_ERROR)?;
    state::lock_memory().accounts.enter(device).map_err(|_| UNHANDLED_CUDA_ERROR)?;
    let handle = state::lock_streams().handle();
    lock_communicators().insert(handle, Communicator { ranks, rank, device });
    place.put(handle);
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRank(handle: *mut usize, ranks: c_int, _id: UniqueId, rank: c_int) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    status_code(unsafe { join_ranks(handle, ranks, rank, None) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRankConfig(
    handle: *mut usize,
    ranks: c_int,
    _id: UniqueId,
    rank: c_int,
    _config: *const c_void,
) -> c_int {
    // SAFETY: as above.
    status_code(unsafe { join_ranks(handle, ranks, rank, None) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRankScalable(
    handle: *mut usize,
    ranks: c_int,
    rank: c_int,
    _count: c_int,
    _ids: *const UniqueId,
    _config: *const c_void,
) -> c_int {
    // SAFETY: as above.
    status_code(unsafe { join_ranks(handle, ranks, rank, None) })
}

/// All ranks in one process: rank `n` on the list's device `n`, or on device `n` without a list.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitAll(handles: *mut usize, count: c_int, devices: *const c_int) -> c_int {
    if handles.is_null() || count < 1 {
        return INVALID_ARGUMENT;
    }
    status_code((0..count).try_for_each(|rank| {
        let at = rank as usize;
        // SAFETY: `count` entries in the list, if there is one, by the API's contract.
        let device = if devices.is_null() { rank } else { unsafe { devices.add(at).read() } };
        let (device, _) = state::device_at(device).map_err(|_| INVALID_ARGUMENT)?;
        // SAFETY: places for `count` handles by the API's contract.
        unsafe { join_ranks(handles.add(at), count, rank, Some(device)) }
    }))
}

/// How many ranks have the same color only the others could tell: the part is taken to be as large as the whole.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommSplit(
    handle: usize,
    color: c_int,
    _key: c_int,
    part: *mut usize,
    _config: *const c_void,
) -> c_int {
    status_code(communicator_of(handle).and_then(|whole| {
        if color == NO_COLOR {
            // SAFETY: a place for the handle by the API's contract.
            return unsafe { Slot::new(part) }.map(|place| place.put(0)).map_err(|_| INVALID_ARGUMENT);
        }
        // SAFETY: as above.
        unsafe { join_ranks(part, whole.ranks, whole.rank, Some(whole.device)) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommShrink(
    handle: usize,
    excluded: *const c_int,
    count: c_int,
    rest: *mut usize,
    _config: *const c_void,
    _flags: c_int,
) -> c_int {
    status_code(communicator_of(handle).and_then(|whole| {
        let count = usize::try_from(count).map_err(|_| INVALID_ARGUMENT)?;
        if excluded.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: `count` entries in the list by the API's contract.
        let excluded = unsafe { std::slice::from_raw_parts(excluded, count) };
        let before = excluded.iter().filter(|&&rank| rank < whole.rank).count() as c_int;
        // SAFETY: a place for the handle by the API's contract.
        unsafe { join_ranks(rest, whole.ranks - count as c_int, whole.rank - before, Some(whole.device)) }
    }))
}

/// # Safety
/// `place` is null or a place for the value.
unsafe fn ask_communicator(handle: usize, place: *mut c_int, value: impl FnOnce(Communicator) -> c_int) -> c_int {
    status_code(communicator_of(handle).and_then(|communicator| {
        // SAFETY: the caller's promise.
        let place = unsafe { Slot::new(place) }.map_err(|_| INVALID_ARGUMENT)?;
        place.put(value(communicator));
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommCount(handle: usize, count: *mut c_int) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    unsafe { ask_communicator(handle, count, |it| it.ranks) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommUserRank(handle: usize, rank: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { ask_communicator(handle, rank, |it| it.rank) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommCuDevice(handle: usize, device: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { ask_communicator(handle, device, |it| it.device as c_int) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommGetAsyncError(handle: usize, error: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { ask_communicator(handle, error, |_| 0) }
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDestroy(handle: usize) -> c_int {
    lock_communicators().remove(&handle).map_or(INVALID_ARGUMENT, |_| 0)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommAbort(handle: usize) -> c_int {
    ncclCommDestroy(handle)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommFinalize(handle: usize) -> c_int {
    status_code(communicator_of(handle).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(result: c_int) -> *const c_char {
    let text = match result {
        0 => c"no error",
        1 => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        2 => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        3 => c"internal error - please report this issue to the NCCL developers",
        4 => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        5 => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        6 => c"remote process exited or there was a network error",
        7 => c"NCCL operation in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_handle: usize) -> *const c_char {
    c"".as_ptr()
}

accepted! {
    ncclGroupStart ncclGroupEnd ncclGroupSimulateEnd ncclSend ncclRecv ncclRedOpDestroy
}

handled! {
    INVALID_ARGUMENT;
    ncclCommDeregister ncclCommWindowDeregister ncclCommSuspend ncclCommResume ncclCommRevoke
}

/// Buffers that are registered stay the caller's memory.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommRegister(handle: usize, buffer: usize, _bytes: usize, registration: *mut usize) -> c_int {
    // SAFETY: a place for the handle, or null, by the API's contract.
    unsafe { put_if_wanted(registration, buffer) };
    status_code(communicator_of(handle).map(drop))
}

refused! {
    INVALID_USAGE;
    ncclCommWindowRegister ncclDevCommCreate ncclDevCommDestroy ncclCommGrow ncclWinGetUserPtr ncclGetPeerDevicePointer
    ncclGetLsaMultimemDevicePointer ncclPutSignal ncclSignal ncclWaitSignal
}

/// What the library keeps on the device: nothing.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommMemStats(handle: usize, _statistic: c_int, value: *mut u64) -> c_int {
    status_code(communicator_of(handle).and_then(|_| {
        // SAFETY: a place for the result by the API's contract.
        unsafe { Slot::new(value) }.map(|place| place.put(0)).map_err(|_| INVALID_ARGUMENT)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommGetUniqueId(handle: usize, id: *mut UniqueId) -> c_int {
    if communicator_of(handle).is_err() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the same contract.
    unsafe { ncclGetUniqueId(id) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclRedOpCreatePreMulSum(operation: *mut c_int) -> c_int {
    /// The first number behind the built-in operations (`ncclNumOps`).
    const FIRST_OWN: c_int = 5;
    // SAFETY: a place for the result by the API's contract.
    unsafe { Slot::new(operation) }.map_or(INVALID_ARGUMENT, |place| {
        place.put(FIRST_OWN);
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclMemAlloc(address: *mut usize, bytes: usize) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(address) };
    let allocated = state::current_device().and_then(|device| state::lock_memory().allocate(device, bytes));
    match (place, allocated) {
        (Ok(place), Ok(address)) => {
            place.put(address);
            0
        }
        (Err(_), _) => INVALID_ARGUMENT,
        (_, Err(_)) => UNHANDLED_CUDA_ERROR,
    }
}

#[unsafe(no_mangle)]
extern "C" fn ncclMemFree(address: usize) -> c_int {
    state::lock_memory().free(address).map_or(UNHANDLED_CUDA_ERROR, |()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null, null_mut};

    pub(super) fn joined(ranks: c_int, rank: c_int) -> usize {
        let mut handle = 0;
        // SAFETY: the place is a local.
        assert_eq!(unsafe { ncclCommInitRank(&raw mut handle, ranks, UniqueId([0; 128]), rank) }, 0);
        handle
    }

    #[test]
    fn hostile_arguments_give_documented_errors() {
        let (mut handle, mut value) = (joined(2, 1), 0);
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(ncclGetUniqueId(null_mut()), INVALID_ARGUMENT);
            assert_eq!(ncclCommInitRank(null_mut(), 1, UniqueId([0; 128]), 0), INVALID_ARGUMENT);
            assert_eq!(ncclCommInitRank(&raw mut handle, 2, UniqueId([0; 128]), 2), INVALID_ARGUMENT);
            assert_eq!(ncclCommInitAll(&raw mut handle, 0, null()), INVALID_ARGUMENT);
            assert_eq!(ncclCommCount(handle, null_mut()), INVALID_ARGUMENT);
            assert_eq!(ncclCommCount(1, &raw mut value), INVALID_ARGUMENT);
            assert_eq!((ncclCommCount(handle, &raw mut value), value), (0, 2));
            assert_eq!((ncclCommUserRank(handle, &raw mut value), value), (0, 1));
            let mut part = 5;
            assert_eq!((ncclCommSplit(handle, NO_COLOR, 0, &raw mut part, null()), part), (0, 0));
            assert_eq!(ncclCommShrink(handle, null(), 1, &raw mut part, null(), 0), INVALID_ARGUMENT);
            assert_eq!((ncclCommShrink(handle, &raw const value, 0, &raw mut part, null(), 0), part != 0), (0, true));
            assert_eq!(ncclMemAlloc(null_mut(), 8), INVALID_ARGUMENT);
        }
        assert_eq!((ncclCommDestroy(handle), ncclCommDestroy(handle)), (0, INVALID_ARGUMENT));
        assert_eq!(ncclMemFree(3), UNHANDLED_CUDA_ERROR);
    }
}
