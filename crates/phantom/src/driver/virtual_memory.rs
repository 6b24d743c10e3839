//! Virtual memory management by the driver's names: `cuMemAddressReserve`, `cuMemCreate`, `cuMemMap` and so on.
#![allow(non_snake_case)]

use std::ffi::{c_int, c_void};

use crate::boundary::{Slot, code_of, read};
use crate::error::{Error, Result};
use crate::memory::GRANULARITY;
use crate::state;

/// `CUmemAllocationProp` (CUDA 12 and 13), as far as it is read.
#[repr(C)]
#[derive(Clone, Copy)]
struct AllocationProperties {
    kind: c_int,
    handle_types: c_int,
    location_kind: c_int,
    location: c_int,
}

/// `CU_MEM_ALLOCATION_TYPE_PINNED` and `CU_MEM_LOCATION_TYPE_DEVICE`: the only ones that PyTorch asks for.
const PINNED: c_int = 1;
const ON_DEVICE: c_int = 1;

/// # Safety
/// `properties` is null or points at the structure.
unsafe fn device_of(properties: *const c_void) -> Result<usize> {
    // SAFETY: the caller's promise.
    let properties = unsafe { read(properties.cast::<AllocationProperties>()) }?;
    if properties.kind != PINNED || properties.location_kind != ON_DEVICE {
        return Err(Error::NOT_SUPPORTED);
    }
    Ok(state::device_at(properties.location)?.0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetAllocationGranularity(
    granularity: *mut usize,
    properties: *const c_void,
    _option: c_int,
) -> c_int {
    // SAFETY: a place and a structure by the API's contract.
    let place = unsafe { Slot::new(granularity) };
    code_of(place.and_then(|place| {
        // SAFETY: as above.
        unsafe { device_of(properties) }?;
        place.give(GRANULARITY)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAddressReserve(
    address: *mut usize,
    bytes: usize,
    _alignment: usize,
    _wish: usize,
    _flags: u64,
) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(address) };
    code_of(place.and_then(|place| place.give(state::lock_memory().reserve(bytes)?)))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAddressFree(address: usize, bytes: usize) -> c_int {
    code_of(state::lock_memory().unreserve(address, bytes))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemCreate(handle: *mut u64, bytes: usize, properties: *const c_void, flags: u64) -> c_int {
    // SAFETY: a place and a structure by the API's contract.
    let place = unsafe { Slot::new(handle) };
    code_of(place.and_then(|place| {
        // SAFETY: as above.
        let device = unsafe { device_of(properties) }?;
        if flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        place.give(state::lock_memory().create(device, bytes)?)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRelease(handle: u64) -> c_int {
    code_of(state::lock_memory().release(handle))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemMap(address: usize, bytes: usize, offset: usize, handle: u64, flags: u64) -> c_int {
    code_of(if flags == 0 {
        state::lock_memory().map(address, bytes, offset, handle)
    } else {
        Err(Error::INVALID_VALUE)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemUnmap(address: usize, bytes: usize) -> c_int {
    code_of(state::lock_memory().unmap(address, bytes))
}

/// A mapping is accessible from the start; what is not mapped cannot be made so.
#[unsafe(no_mangle)]
extern "C" fn cuMemSetAccess(address: usize, bytes: usize, descriptions: *const c_void, count: usize) -> c_int {
    let covered = state::lock_memory().covers(address, bytes);
    code_of(if covered && (!descriptions.is_null() || count == 0) { Ok(()) } else { Err(Error::INVALID_VALUE) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetAccess(flags: *mut u64, _location: *const c_void, address: usize) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(flags) };
    code_of(place.and_then(|place| {
        // `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`, or none.
        place.give(if state::lock_memory().block_at(address).is_some() { 3 } else { 0 })
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemRetainAllocationHandle(handle: *mut u64, address: usize) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(handle) };
    code_of(place.and_then(|place| place.give(state::lock_memory().retain(address)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetAllocationPropertiesFromHandle(properties: *mut c_void, handle: u64) -> c_int {
    // SAFETY: a place for the structure, of which the rest is left alone, by the API's contract.
    let place = unsafe { Slot::new(properties.cast::<AllocationProperties>()) };
    code_of(place.and_then(|place| {
        let device = state::lock_memory().device_of_handle(handle)?;
        place.put(AllocationProperties {
            kind: PINNED,
            handle_types: 0,
            location_kind: ON_DEVICE,
            location: device as c_int,
        });
        Ok(())
    }))
}

/// Functions that exist to be refused: handles for other processes, and memory that several devices share by multicast.
macro_rules! refused {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            code_of(Err(Error::NOT_SUPPORTED))
        }
    )*};
}

refused! {
    cuMemExportToShareableHandle cuMemImportFromShareableHandle cuMulticastCreate cuMulticastAddDevice cuMulticastBindMem
    cuMulticastBindAddr cuMulticastUnbind cuMulticastGetGranularity cuIpcGetMemHandle cuIpcOpenMemHandle_v2
    cuIpcCloseMemHandle cuIpcGetEventHandle cuIpcOpenEventHandle
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null, null_mut};

    #[test]
    fn segments_expand_and_shrink() {
        let properties = AllocationProperties { kind: PINNED, handle_types: 0, location_kind: ON_DEVICE, location: 0 };
        let properties = (&raw const properties).cast();
        let (mut address, mut handle) = (0, 0);
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(cuMemAddressReserve(&raw mut address, 1 << 38, 0, 0, 0), 0);
            assert_eq!(cuMemCreate(&raw mut handle, 20 << 20, properties, 0), 0);
            assert_eq!(cuMemSetAccess(address, 20 << 20, properties, 1), 1);
            assert_eq!(cuMemMap(address, 20 << 20, 0, handle, 0), 0);
            assert_eq!(cuMemSetAccess(address, 20 << 20, properties, 1), 0);
            assert_eq!((cuMemUnmap(address, 20 << 20), cuMemRelease(handle)), (0, 0));
            assert_eq!(cuMemAddressFree(address, 1 << 38), 0);
        }
    }

    #[test]
    fn hostile_arguments_give_documented_errors() {
        let mut handle = 0;
        let elsewhere = AllocationProperties { kind: 1, handle_types: 0, location_kind: 1, location: 9 };
        let on_host = AllocationProperties { kind: 1, handle_types: 0, location_kind: 2, location: 0 };
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(cuMemCreate(null_mut(), 2 << 20, null(), 0), 1);
            assert_eq!(cuMemCreate(&raw mut handle, 2 << 20, null(), 0), 1);
            assert_eq!(cuMemCreate(&raw mut handle, 2 << 20, (&raw const elsewhere).cast(), 0), 101);
            assert_eq!(cuMemCreate(&raw mut handle, 2 << 20, (&raw const on_host).cast(), 0), 801);
            assert_eq!(cuMemAddressReserve(null_mut(), 2 << 20, 0, 0, 0), 1);
        }
        assert_eq!((cuMemRelease(99_999), cuMemUnmap(8, 2 << 20), cuMemAddressFree(8, 8)), (1, 1, 1));
        assert_eq!((cuMemMap(8, 2 << 20, 0, 1, 5), cuMemExportToShareableHandle()), (1, 801));
    }
}
