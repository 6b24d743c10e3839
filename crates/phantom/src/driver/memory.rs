//! Memory by the driver's names.
#![allow(non_snake_case)]

use std::ffi::{c_int, c_uint, c_void};

use crate::boundary::{Slot, code_of, put_if_wanted};
use crate::error::{Error, Result};
use crate::memory::{Kind, Side, copy_bytes, fill_bytes};
use crate::state;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut usize, bytes: usize) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(address) };
    code_of(place.and_then(|place| {
        if bytes == 0 {
            return Err(Error::INVALID_VALUE);
        }
        place.give(state::lock_memory().allocate(state::current_device()?, bytes)?)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocManaged(address: *mut usize, bytes: usize, _flags: c_uint) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(address) };
    code_of(place.and_then(|place| place.give(state::lock_memory().allocate_managed(state::current_device()?, bytes)?)))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: usize) -> c_int {
    code_of(state::lock_memory().free(address))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync(address: *mut usize, bytes: usize, _stream: usize) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(address) };
    code_of(place.and_then(|place| {
        let device = state::current_device()?;
        let mut memory = state::lock_memory();
        let pool = memory.default_pool(device);
        place.give(memory.allocate_from(pool, bytes)?)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: usize, _stream: usize) -> c_int {
    code_of(state::lock_memory().free(address))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(address: *mut usize, bytes: usize, _flags: c_uint) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(address) };
    code_of(place.and_then(|place| place.give(state::lock_memory().host.allocate(bytes)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocHost_v2(address: *mut usize, bytes: usize) -> c_int {
    // SAFETY: the same contract.
    unsafe { cuMemHostAlloc(address, bytes, 0) }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(address: usize) -> c_int {
    code_of(state::lock_memory().host.free(address))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostRegister_v2(address: usize, bytes: usize, _flags: c_uint) -> c_int {
    code_of(state::lock_memory().host.register(address, bytes))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostUnregister(address: usize) -> c_int {
    code_of(state::lock_memory().host.unregister(address))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostGetDevicePointer_v2(device: *mut usize, host: usize, _flags: c_uint) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(device) };
    code_of(place.and_then(|place| {
        if state::lock_memory().host.holds(host) { place.give(host) } else { Err(Error::INVALID_VALUE) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int {
    // SAFETY: as above.
    let places = unsafe { Slot::new(free) }.and_then(|free| Ok((free, unsafe { Slot::new(total) }?)));
    code_of(places.and_then(|(free, total)| {
        let (left, all) = state::lock_memory().accounts.free_and_total(state::current_device()?)?;
        free.put(left as usize);
        total.give(all as usize)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetAddressRange_v2(base: *mut usize, bytes: *mut usize, address: usize) -> c_int {
    code_of(state::lock_memory().block_at(address).ok_or(Error::NOT_FOUND).map(|(start, block)| {
        // SAFETY: places for results, or null, by the API's contract.
        unsafe {
            put_if_wanted(base, start);
            put_if_wanted(bytes, block.bytes);
        }
    }))
}

/// Functions of one shape: to, from, bytes, and perhaps a stream; and where both have to lie.
macro_rules! copies {
    ($($name:ident: $to:ident $from:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(to: usize, from: usize, bytes: usize) -> c_int {
            // SAFETY: host ranges are valid by the API's contract.
            code_of(unsafe { copy_bytes(&mut state::lock_memory(), to, from, bytes, (Side::$to, Side::$from)) })
        }
    )*};
}

copies! {
    cuMemcpy: Any Any cuMemcpyAsync: Any Any cuMemcpyHtoD_v2: Device Any cuMemcpyHtoDAsync_v2: Device Any
    cuMemcpyDtoH_v2: Any Device cuMemcpyDtoHAsync_v2: Any Device cuMemcpyDtoD_v2: Device Device
    cuMemcpyDtoDAsync_v2: Device Device
}

/// # Safety
/// A host range would have to be valid.
unsafe fn set_memory(address: usize, value: u8, count: usize, width: usize) -> Result {
    let bytes = count.checked_mul(width).ok_or(Error::INVALID_VALUE)?;
    // SAFETY: the caller's promise.
    unsafe { fill_bytes(&mut state::lock_memory(), address, value, bytes) }
}

/// Functions of one shape: address, value, count, and perhaps a stream. Only the value's lowest byte is kept, as fills
/// other than with zero are not read back by anything that we know.
macro_rules! fills {
    ($($name:ident: $width:literal)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(address: usize, value: c_uint, count: usize) -> c_int {
            // SAFETY: the API's contract.
            code_of(unsafe { set_memory(address, value as u8, count, $width) })
        }
    )*};
}

fills! {
    cuMemsetD8_v2: 1 cuMemsetD8Async: 1 cuMemsetD16_v2: 2 cuMemsetD16Async: 2 cuMemsetD32_v2: 4 cuMemsetD32Async: 4
}

/// `CUpointer_attribute`, as far as PyTorch and Triton ask.
const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const DEVICE_POINTER: c_int = 3;
const HOST_POINTER: c_int = 4;
const SYNC_MEMOPS: c_int = 6;
const BUFFER_ID: c_int = 7;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;
const RANGE_START: c_int = 11;
const RANGE_SIZE: c_int = 12;
const MAPPED: c_int = 13;

/// An attribute's value, of the type that the API gives it.
enum Value {
    Word(u64),
    Number(c_uint),
    Flag(bool),
}

fn pointer_attribute(attribute: c_int, address: usize) -> Result<Value> {
    let memory = state::lock_memory();
    let block = memory.block_at(address);
    let is_host = memory.host.holds(address);
    if block.is_none() && !is_host {
        return Err(Error::INVALID_VALUE);
    }
    let managed = block.is_some_and(|(_, block)| block.kind == Kind::Managed);
    let device = match block {
        Some((_, block)) => block.device,
        None => state::current_device()?,
    };
    Ok(match attribute {
        CONTEXT => Value::Word(0x4000 + device as u64),
        MEMORY_TYPE => Value::Number(if block.is_some() { 2 } else { 1 }),
        DEVICE_POINTER => Value::Word(address as u64),
        HOST_POINTER if is_host || managed => Value::Word(address as u64),
        BUFFER_ID => Value::Word(block.map_or(address, |(start, _)| start) as u64),
        IS_MANAGED => Value::Flag(managed),
        DEVICE_ORDINAL => Value::Number(device as c_uint),
        RANGE_START => Value::Word(block.map_or(address, |(start, _)| start) as u64),
        RANGE_SIZE => Value::Word(block.map_or(0, |(_, block)| block.bytes) as u64),
        MAPPED => Value::Flag(true),
        _ => return Err(Error::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: usize) -> c_int {
    code_of(pointer_attribute(attribute, address).and_then(|got| {
        // SAFETY: a place for the attribute's type by the API's contract.
        unsafe {
            match got {
                Value::Word(word) => Slot::new(value.cast::<u64>())?.put(word),
                Value::Number(number) => Slot::new(value.cast::<c_uint>())?.put(number),
                Value::Flag(flag) => Slot::new(value.cast::<u8>())?.put(u8::from(flag)),
            }
        }
        Ok(())
    }))
}

/// What is not known of an address is left as zero, as the API documents; each attribute has a place of its own.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *const c_int,
    values: *const *mut c_void,
    address: usize,
) -> c_int {
    if attributes.is_null() || values.is_null() {
        return code_of(Err(Error::INVALID_VALUE));
    }
    for at in 0..count as usize {
        // SAFETY: `count` entries in each list, with a place for each attribute's type, by the API's contract.
        unsafe { cuPointerGetAttribute(values.add(at).read(), attributes.add(at).read(), address) };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerSetAttribute(_value: *const c_void, attribute: c_int, address: usize) -> c_int {
    let known = state::lock_memory().block_at(address).is_some();
    code_of(if known && attribute == SYNC_MEMOPS { Ok(()) } else { Err(Error::INVALID_VALUE) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    #[test]
    fn hostile_arguments_give_documented_errors() {
        let mut address = 0_usize;
        let mut word = 0_u64;
        // SAFETY: every pointer is null or a local's; hostile addresses are refused unread.
        unsafe {
            assert_eq!(cuMemAlloc_v2(null_mut(), 8), 1);
            assert_eq!(cuMemAlloc_v2(&raw mut address, 0), 1);
            assert_eq!(cuMemAlloc_v2(&raw mut address, 1 << 60), 2);
            assert_eq!(cuMemAlloc_v2(&raw mut address, 8), 0);
            assert_eq!(cuMemsetD32_v2(address, 0, usize::MAX), 1);
            assert_eq!(cuMemcpyHtoD_v2(address, 0, 4), 1);
            assert_eq!(cuPointerGetAttribute(null_mut(), MEMORY_TYPE, address), 1);
            assert_eq!(cuPointerGetAttribute((&raw mut word).cast(), MEMORY_TYPE, 8), 1);
            assert_eq!((cuPointerGetAttribute((&raw mut word).cast(), BUFFER_ID, address), word), (0, address as u64));
            assert_eq!(cuMemGetInfo_v2(null_mut(), null_mut()), 1);
            assert_eq!(cuMemGetAddressRange_v2(null_mut(), null_mut(), 8), 500);
        }
        assert_eq!((cuMemFree_v2(address), cuMemFree_v2(address)), (0, 1));
    }
}
