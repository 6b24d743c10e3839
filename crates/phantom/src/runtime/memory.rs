//! Memory: allocating, freeing, copying, filling, and asking about addresses.
#![allow(non_snake_case)]

use std::ffi::{c_int, c_uint, c_void};

use crate::boundary::{Slot, put_if_wanted, report_code};
use crate::error::{Error, Result};
use crate::memory::{Kind, Side, copy_bytes, fill_bytes};
use crate::state;

/// A symbol's stand-in on the device: `__device__` variables are read and written here as far as copies are performed.
const SYMBOL_BYTES: usize = 1 << 20;

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMalloc(address: *mut usize, bytes: usize) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(address) };
    report_code(place.and_then(|place| place.give(state::lock_memory().allocate(state::current_device()?, bytes)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMallocManaged(address: *mut usize, bytes: usize, _flags: c_uint) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(address) };
    report_code(
        place.and_then(|place| place.give(state::lock_memory().allocate_managed(state::current_device()?, bytes)?)),
    )
}

/// A pitch is a multiple of 512 bytes, as on every GPU.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMallocPitch(address: *mut usize, pitch: *mut usize, width: usize, height: usize) -> c_int {
    // SAFETY: as above.
    let places = unsafe { Slot::new(address) }.and_then(|address| Ok((address, unsafe { Slot::new(pitch) }?)));
    report_code(places.and_then(|(address, pitch)| {
        let row = width.checked_next_multiple_of(512).ok_or(Error::OUT_OF_MEMORY)?;
        let bytes = row.checked_mul(height).ok_or(Error::OUT_OF_MEMORY)?;
        address.put(state::lock_memory().allocate(state::current_device()?, bytes)?);
        pitch.give(row)
    }))
}

/// `cudaFree(0)` is how programs make a context.
#[unsafe(no_mangle)]
extern "C" fn cudaFree(address: usize) -> c_int {
    report_code(state::current_device().and_then(|device| {
        let mut memory = state::lock_memory();
        memory.accounts.enter(device)?;
        memory.free(address)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaHostAlloc(address: *mut usize, bytes: usize, _flags: c_uint) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(address) };
    report_code(place.and_then(|place| place.give(state::lock_memory().host.allocate(bytes)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMallocHost(address: *mut usize, bytes: usize) -> c_int {
    // SAFETY: the same contract.
    unsafe { cudaHostAlloc(address, bytes, 0) }
}

#[unsafe(no_mangle)]
extern "C" fn cudaFreeHost(address: usize) -> c_int {
    report_code(state::lock_memory().host.free(address))
}

#[unsafe(no_mangle)]
extern "C" fn cudaHostRegister(address: usize, bytes: usize, _flags: c_uint) -> c_int {
    report_code(state::lock_memory().host.register(address, bytes))
}

#[unsafe(no_mangle)]
extern "C" fn cudaHostUnregister(address: usize) -> c_int {
    report_code(state::lock_memory().host.unregister(address))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaHostGetDevicePointer(device: *mut usize, host: usize, _flags: c_uint) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(device) };
    report_code(place.and_then(|place| {
        if state::lock_memory().host.holds(host) { place.give(host) } else { Err(Error::INVALID_VALUE) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaHostGetFlags(flags: *mut c_uint, host: usize) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(flags) };
    report_code(place.and_then(|place| {
        if state::lock_memory().host.holds(host) { place.give(0) } else { Err(Error::INVALID_VALUE) }
    }))
}

/// `cudaMemcpyKind`: host and device in all combinations, or by address; what it says of target and source.
fn copy_sides(kind: c_int) -> Result<(Side, Side)> {
    match kind {
        0 | 4 => Ok((Side::Any, Side::Any)),
        1 => Ok((Side::Device, Side::Any)),
        2 => Ok((Side::Any, Side::Device)),
        3 => Ok((Side::Device, Side::Device)),
        _ => Err(Error::INVALID_COPY_DIRECTION),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemcpy(to: usize, from: usize, bytes: usize, kind: c_int) -> c_int {
    // SAFETY: host ranges are valid by the API's contract.
    report_code(
        copy_sides(kind).and_then(|sides| unsafe { copy_bytes(&mut state::lock_memory(), to, from, bytes, sides) }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemcpyAsync(to: usize, from: usize, bytes: usize, kind: c_int, stream: usize) -> c_int {
    let allowed = copy_sides(kind).and_then(|sides| state::lock_streams().add_nodes(stream, 1).map(|()| sides));
    // SAFETY: as above.
    report_code(allowed.and_then(|sides| unsafe { copy_bytes(&mut state::lock_memory(), to, from, bytes, sides) }))
}

/// Rows that lie a pitch apart.
struct Rows {
    to: usize,
    to_pitch: usize,
    from: usize,
    from_pitch: usize,
    width: usize,
    height: usize,
}

/// Rows are copied one by one, so each is performed if it is small.
///
/// # Safety
/// Host ranges are valid for the rows.
unsafe fn copy_rows(rows: &Rows, kind: c_int) -> Result {
    let Rows { to, to_pitch, from, from_pitch, width, height } = *rows;
    let sides = copy_sides(kind)?;
    if width > to_pitch || width > from_pitch {
        return Err(Error::INVALID_PITCH);
    }
    let mut memory = state::lock_memory();
    for row in 0..height {
        let to = to_pitch.checked_mul(row).and_then(|by| to.checked_add(by)).ok_or(Error::INVALID_VALUE)?;
        let from = from_pitch.checked_mul(row).and_then(|by| from.checked_add(by)).ok_or(Error::INVALID_VALUE)?;
        // SAFETY: the caller's promise.
        unsafe { copy_bytes(&mut memory, to, from, width, sides) }?;
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemcpy2D(
    to: usize,
    to_pitch: usize,
    from: usize,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
) -> c_int {
    // SAFETY: host ranges are valid by the API's contract.
    report_code(unsafe { copy_rows(&Rows { to, to_pitch, from, from_pitch, width, height }, kind) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemcpy2DAsync(
    to: usize,
    to_pitch: usize,
    from: usize,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
    stream: usize,
) -> c_int {
    let allowed = copy_sides(kind).and_then(|_| state::lock_streams().add_nodes(stream, 1));
    let rows = Rows { to, to_pitch, from, from_pitch, width, height };
    // SAFETY: as above.
    report_code(allowed.and_then(|()| unsafe { copy_rows(&rows, kind) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemcpyPeer(to: usize, to_device: c_int, from: usize, device: c_int, bytes: usize) -> c_int {
    let devices = state::device_at(to_device).and_then(|_| state::device_at(device));
    // SAFETY: ranges are on devices, where they are checked.
    report_code(
        devices.and_then(|_| unsafe {
            copy_bytes(&mut state::lock_memory(), to, from, bytes, (Side::Device, Side::Device))
        }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemcpyPeerAsync(
    to: usize,
    to_device: c_int,
    from: usize,
    device: c_int,
    bytes: usize,
    stream: usize,
) -> c_int {
    if let Err(error) = state::lock_streams().add_nodes(stream, 1) {
        return report_code(Err(error));
    }
    // SAFETY: the same contract.
    unsafe { cudaMemcpyPeer(to, to_device, from, device, bytes) }
}

/// CUDA 12.8's batched copies; the attributes and the place of a failure are not used.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemcpyBatchAsync(
    targets: *const usize,
    sources: *const usize,
    sizes: *const usize,
    count: usize,
) -> c_int {
    if targets.is_null() || sources.is_null() || sizes.is_null() {
        return report_code(Err(Error::INVALID_VALUE));
    }
    report_code((0..count).try_for_each(|at| {
        // SAFETY: `count` entries in each list, and ranges that are valid, by the API's contract.
        let (to, from, bytes) = unsafe { (targets.add(at).read(), sources.add(at).read(), sizes.add(at).read()) };
        // SAFETY: as above.
        unsafe { copy_bytes(&mut state::lock_memory(), to, from, bytes, (Side::Any, Side::Any)) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemset(address: usize, value: c_int, bytes: usize) -> c_int {
    // SAFETY: a host range would be valid by the API's contract.
    report_code(unsafe { fill_bytes(&mut state::lock_memory(), address, value as u8, bytes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemsetAsync(address: usize, value: c_int, bytes: usize, stream: usize) -> c_int {
    let allowed = state::lock_streams().add_nodes(stream, 1);
    // SAFETY: as above.
    report_code(allowed.and_then(|()| unsafe { fill_bytes(&mut state::lock_memory(), address, value as u8, bytes) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemset2DAsync(
    address: usize,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
    _stream: usize,
) -> c_int {
    report_code((0..height).try_for_each(|row| {
        let at = pitch.checked_mul(row).and_then(|by| address.checked_add(by)).ok_or(Error::INVALID_VALUE)?;
        // SAFETY: as above.
        unsafe { fill_bytes(&mut state::lock_memory(), at, value as u8, width) }
    }))
}

/// Managed memory stays where it is.
#[unsafe(no_mangle)]
extern "C" fn cudaMemPrefetchAsync(address: usize, bytes: usize) -> c_int {
    report_code(state::lock_memory().place_of(address, bytes).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemPrefetchAsync_v2(address: usize, bytes: usize) -> c_int {
    report_code(state::lock_memory().place_of(address, bytes).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemAdvise(address: usize, bytes: usize, _advice: c_int) -> c_int {
    report_code(state::lock_memory().place_of(address, bytes).map(drop))
}

/// The one stand-in for all symbols: nobody reads a large one back.
fn symbol_address() -> Result<usize> {
    use std::sync::OnceLock;
    static SYMBOL: OnceLock<Result<usize>> = OnceLock::new();
    *SYMBOL.get_or_init(|| state::lock_memory().symbol(SYMBOL_BYTES))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetSymbolAddress(address: *mut usize, symbol: usize) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(address) };
    report_code(
        place.and_then(|place| if symbol == 0 { Err(Error::INVALID_SYMBOL) } else { place.give(symbol_address()?) }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetSymbolSize(bytes: *mut usize, symbol: usize) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(bytes) };
    report_code(place.and_then(|place| if symbol == 0 { Err(Error::INVALID_SYMBOL) } else { place.give(SYMBOL_BYTES) }))
}

/// Symbols are not told apart, so nothing is written.
#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyToSymbol(symbol: usize, from: usize, _bytes: usize, _offset: usize, kind: c_int) -> c_int {
    report_code(copy_sides(kind).map(drop).and(if symbol == 0 || from == 0 {
        Err(Error::INVALID_SYMBOL)
    } else {
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyToSymbolAsync(symbol: usize, from: usize, bytes: usize, offset: usize, kind: c_int) -> c_int {
    cudaMemcpyToSymbol(symbol, from, bytes, offset, kind)
}

/// `cudaPointerAttributes`, without the fields that CUDA 13 reserves.
#[repr(C)]
struct PointerAttributes {
    kind: c_int,
    device: c_int,
    device_pointer: usize,
    host_pointer: usize,
}

/// `cudaMemoryType`; a pointer that CUDA does not know has no device, which -2 says.
const UNREGISTERED: (c_int, c_int) = (0, -2);
const HOST: c_int = 1;
const DEVICE: c_int = 2;
const MANAGED: c_int = 3;

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaPointerGetAttributes(attributes: *mut c_void, address: usize) -> c_int {
    // SAFETY: a place for the structure by the API's contract.
    let place = unsafe { Slot::new(attributes.cast::<PointerAttributes>()) };
    report_code(place.and_then(|place| {
        let memory = state::lock_memory();
        let attributes = match memory.block_at(address) {
            Some((_, block)) => {
                let managed = block.kind == Kind::Managed;
                PointerAttributes {
                    kind: if managed { MANAGED } else { DEVICE },
                    device: block.device as c_int,
                    device_pointer: address,
                    host_pointer: if managed { address } else { 0 },
                }
            }
            None if memory.host.holds(address) => PointerAttributes {
                kind: HOST,
                device: state::current_device()? as c_int,
                device_pointer: address,
                host_pointer: address,
            },
            None => PointerAttributes {
                kind: UNREGISTERED.0,
                device: UNREGISTERED.1,
                device_pointer: 0,
                host_pointer: address,
            },
        };
        place.give(attributes)
    }))
}

/// Arrays and textures hold images, which no training program that we know puts on a GPU.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMallocArray(array: *mut usize) -> c_int {
    // SAFETY: a place for the handle, or null, by the API's contract.
    unsafe { put_if_wanted(array, 0) };
    report_code(Err(Error::NOT_SUPPORTED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    #[test]
    fn hostile_arguments_give_documented_errors() {
        let mut address = 0_usize;
        // SAFETY: every pointer is null or a local's; hostile addresses lie in no mapped memory and are refused unread.
        unsafe {
            assert_eq!(cudaMalloc(null_mut(), 8), 1);
            assert_eq!(cudaMalloc(&raw mut address, usize::MAX), 2);
            assert_eq!((cudaMalloc(&raw mut address, 64), cudaFree(address + 1)), (0, 1));
            assert_eq!(cudaMemcpy(address, 0, 8, 1), 1);
            assert_eq!(cudaMemcpy(address, address, 8, 9), 21);
            assert_eq!(cudaMemcpyAsync(address, address, 8, 3, 99), 400);
            assert_eq!(cudaMemcpy2D(address, 4, address, 4, 8, 2, 3), 12);
            assert_eq!(cudaMemset(0, 0, 8), 1);
            assert_eq!(cudaMemset(address + (1 << 30), 0, 8), 1);
            assert_eq!(cudaHostAlloc(null_mut(), 8, 0), 1);
            assert_eq!(cudaFreeHost(12345), 1);
            assert_eq!(cudaHostUnregister(12345), 713);
            assert_eq!(cudaPointerGetAttributes(null_mut(), address), 1);
            assert_eq!((cudaFree(address), cudaFree(address)), (0, 1));
            assert_eq!(cudaGetSymbolAddress(&raw mut address, 0), 13);
            assert_eq!(cudaMemcpyPeer(0, 7, 0, 0, 4), 101);
        }
    }

    #[test]
    fn addresses_say_what_they_are() {
        let mut device = 0_usize;
        let mut host = 0_usize;
        let mut seen = PointerAttributes { kind: 9, device: 9, device_pointer: 0, host_pointer: 0 };
        // SAFETY: all places are locals of the right type.
        unsafe {
            assert_eq!(cudaMalloc(&raw mut device, 64), 0);
            assert_eq!(cudaHostAlloc(&raw mut host, 64, 0), 0);
            for (address, expected) in [(device + 3, (2, 0)), (host + 3, (1, 0)), (8, (0, -2))] {
                assert_eq!(cudaPointerGetAttributes((&raw mut seen).cast(), address), 0);
                assert_eq!((seen.kind, seen.device), expected);
            }
        }
        assert_eq!((cudaFree(device), cudaFreeHost(host)), (0, 0));
    }
}
