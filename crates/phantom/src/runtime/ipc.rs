//! Sharing between processes: `cudaIpc*`, by which PyTorch sends tensors (`share_memory`, queues). Sharing by file descriptors
//! (memory pools, expandable segments) and with other APIs is refused.
#![allow(non_snake_case)]

use std::ffi::{c_int, c_uint};
use std::process;

use crate::boundary::{Slot, report_code};
use crate::error::{Error, Result};
use crate::memory::Handle;
use crate::state;

/// `cudaIpcMemLazyEnablePeerAccess`, the only flag that there is.
const LAZY_PEER_ACCESS: c_uint = 1;
/// `cudaEventDisableTiming` and `cudaEventInterprocess`: what an event is that came from another process.
const OF_ANOTHER: c_uint = 2 | 4;

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaIpcGetMemHandle(handle: *mut Handle, address: usize) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(handle) };
    report_code(place.and_then(|place| place.give(state::lock_memory().share(address, process::id())?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaIpcOpenMemHandle(address: *mut usize, handle: Handle, flags: c_uint) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(address) };
    report_code(place.and_then(|place| place.give(open_memory(handle, flags)?)))
}

fn open_memory(handle: Handle, flags: c_uint) -> Result<usize> {
    if flags & !LAZY_PEER_ACCESS != 0 {
        return Err(Error::INVALID_VALUE);
    }
    state::lock_memory().open_shared(handle, process::id())
}

#[unsafe(no_mangle)]
extern "C" fn cudaIpcCloseMemHandle(address: usize) -> c_int {
    report_code(state::lock_memory().close_shared(address))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaIpcGetEventHandle(handle: *mut Handle, event: usize) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(handle) };
    report_code(place.and_then(|place| {
        state::lock_streams().check_event(event)?;
        place.give(Handle::of_event())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaIpcOpenEventHandle(event: *mut usize, handle: Handle) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(event) };
    report_code(place.and_then(|place| {
        if !handle.is_event() {
            return Err(Error::INVALID_VALUE);
        }
        place.give(state::lock_streams().create_event(OF_ANOTHER))
    }))
}

/// Functions that exist to be refused.
macro_rules! refused {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            report_code(Err(Error::NOT_SUPPORTED))
        }
    )*};
}

refused! {
    cudaMemPoolExportToShareableHandle cudaMemPoolImportFromShareableHandle cudaMemPoolExportPointer cudaMemPoolImportPointer
    cudaImportExternalMemory cudaImportExternalSemaphore
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    #[test]
    fn an_events_handle_opens_an_event() {
        let mut handle = Handle::of_event();
        let (mut event, mut address) = (0, 0);
        let made = state::lock_streams().create_event(OF_ANOTHER);
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(cudaIpcGetEventHandle(&raw mut handle, 5), Error::INVALID_HANDLE.0);
            assert_eq!(cudaIpcGetEventHandle(&raw mut handle, made), 0);
            assert_eq!(cudaIpcOpenEventHandle(&raw mut event, handle), 0);
            assert_eq!(cudaIpcOpenMemHandle(&raw mut address, handle, 1), Error::INVALID_VALUE.0);
            assert_eq!(cudaIpcOpenMemHandle(null_mut(), handle, 1), Error::INVALID_VALUE.0);
            assert_eq!(cudaIpcGetMemHandle(null_mut(), 0), Error::INVALID_VALUE.0);
        }
        assert_eq!(cudaIpcCloseMemHandle(0), Error::INVALID_VALUE.0);
        assert!(state::lock_streams().check_event(event).is_ok());
    }

    #[test]
    fn sharing_by_file_descriptors_is_refused_with_the_documented_error() {
        assert_eq!((cudaMemPoolImportPointer(), cudaImportExternalMemory()), (801, 801));
    }
}
