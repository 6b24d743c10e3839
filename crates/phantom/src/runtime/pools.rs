//! Stream-ordered allocation: `cudaMallocAsync` and `cudaMemPool*`.
#![allow(non_snake_case)]

use std::ffi::{c_int, c_void};

use crate::boundary::{Slot, read, report_code};
use crate::error::{Error, Result};
use crate::memory::Attribute;
use crate::state;

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMallocAsync(address: *mut usize, bytes: usize, stream: usize) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(address) };
    report_code(place.and_then(|place| {
        state::lock_streams().add_nodes(stream, 1)?;
        let device = state::current_device()?;
        let mut memory = state::lock_memory();
        let pool = memory.default_pool(device);
        place.give(memory.allocate_from(pool, bytes)?)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMallocFromPoolAsync(address: *mut usize, bytes: usize, pool: usize, stream: usize) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(address) };
    report_code(place.and_then(|place| {
        state::lock_streams().add_nodes(stream, 1)?;
        place.give(state::lock_memory().allocate_from(pool, bytes)?)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cudaFreeAsync(address: usize, stream: usize) -> c_int {
    report_code(state::lock_streams().add_nodes(stream, 1).and_then(|()| state::lock_memory().free(address)))
}

fn default_pool(device: c_int) -> Result<usize> {
    let (index, _) = state::device_at(device)?;
    Ok(state::lock_memory().default_pool(index))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDeviceGetDefaultMemPool(pool: *mut usize, device: c_int) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    report_code(unsafe { Slot::new(pool) }.and_then(|place| place.give(default_pool(device)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDeviceGetMemPool(pool: *mut usize, device: c_int) -> c_int {
    // SAFETY: as above.
    report_code(unsafe { Slot::new(pool) }.and_then(|place| place.give(default_pool(device)?)))
}

/// `cudaMemAllocNodeParams` and its kin are not read: a pool belongs to the current device.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemPoolCreate(pool: *mut usize, properties: *const c_void) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(pool) };
    report_code(place.and_then(|place| {
        if properties.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        let device = state::current_device()?;
        place.give(state::lock_memory().create_pool(device))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemPoolDestroy(pool: usize) -> c_int {
    report_code(state::lock_memory().destroy_pool(pool))
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceSetMemPool(device: c_int, _pool: usize) -> c_int {
    report_code(state::device_at(device).and(Err(Error::NOT_SUPPORTED)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemPoolGetAttribute(pool: usize, attribute: c_int, value: *mut c_void) -> c_int {
    let got = state::lock_memory().pool_attribute(pool, attribute);
    // SAFETY: a place for the attribute's type (`int` or a 64-bit number) by the API's contract.
    report_code(got.and_then(|got| unsafe {
        match got {
            Attribute::Switch(on) => Slot::new(value.cast::<c_int>()).map(|place| place.put(on)),
            Attribute::Amount(bytes) => Slot::new(value.cast::<u64>()).map(|place| place.put(bytes)),
        }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemPoolSetAttribute(pool: usize, attribute: c_int, value: *const c_void) -> c_int {
    // SAFETY: a value of the attribute's type by the API's contract.
    let value = unsafe {
        match attribute {
            1..=3 => read(value.cast::<c_int>()).map(Attribute::Switch),
            _ => read(value.cast::<u64>()).map(Attribute::Amount),
        }
    };
    report_code(value.and_then(|value| state::lock_memory().set_pool_attribute(pool, attribute, value)))
}

/// Every device may read every pool.
#[unsafe(no_mangle)]
extern "C" fn cudaMemPoolSetAccess(pool: usize, descriptions: *const c_void, count: usize) -> c_int {
    let known = state::lock_memory().pool_attribute(pool, 4).map(drop);
    report_code(if descriptions.is_null() && count > 0 { Err(Error::INVALID_VALUE) } else { known })
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemPoolTrimTo(pool: usize, keep: usize) -> c_int {
    report_code(state::lock_memory().trim(pool, keep as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null, null_mut};

    #[test]
    fn hostile_arguments_give_documented_errors() {
        let mut value = 0_u64;
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(cudaMallocAsync(null_mut(), 8, 0), 1);
            assert_eq!(cudaDeviceGetDefaultMemPool(null_mut(), 0), 1);
            assert_eq!(cudaMemPoolCreate(null_mut(), null()), 1);
            assert_eq!(cudaMemPoolGetAttribute(7, 4, (&raw mut value).cast()), 1);
            assert_eq!(cudaMemPoolSetAttribute(7, 4, null()), 1);
            let mut pool = 0_usize;
            assert_eq!(cudaDeviceGetDefaultMemPool(&raw mut pool, 3), 101);
            assert_eq!(cudaDeviceGetDefaultMemPool(&raw mut pool, 0), 0);
            assert_eq!(cudaMemPoolGetAttribute(pool, 4, null_mut()), 1);
            assert_eq!(cudaMemPoolGetAttribute(pool, 44, (&raw mut value).cast()), 1);
        }
        assert_eq!(cudaMemPoolTrimTo(5, 0), 1);
        assert_eq!(cudaFreeAsync(8, 0), 1);
        assert_eq!(cudaFreeAsync(0, 77), 400);
    }
}
