//! Devices: choosing, counting, asking.
#![allow(non_snake_case)]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Mutex;

use crate::boundary::{Slot, put_if_wanted, read, report_code};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::state;

/// Which pairs of devices have peer access enabled.
static PEERS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDeviceCount(count: *mut c_int) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(count) };
    report_code(place.and_then(|place| {
        let devices = state::config().devices.len();
        place.put(devices as c_int);
        if devices == 0 { Err(Error::NO_DEVICE) } else { Ok(()) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDevice(device: *mut c_int) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(device) };
    report_code(place.and_then(|place| place.give(state::current_device()? as c_int)))
}

/// Since CUDA 12, choosing a device makes its context.
#[unsafe(no_mangle)]
extern "C" fn cudaSetDevice(device: c_int) -> c_int {
    report_code(state::device_at(device).and_then(|(index, _)| {
        state::lock_memory().accounts.enter(index)?;
        state::set_current(index);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaSetValidDevices(_devices: *const c_int, _count: c_int) -> c_int {
    report_code(state::current_device().map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cudaInitDevice(device: c_int, _device_flags: c_uint, _flags: c_uint) -> c_int {
    report_code(state::device_at(device).and_then(|(index, _)| state::lock_memory().accounts.enter(index)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaChooseDevice(device: *mut c_int, _properties: *const c_void) -> c_int {
    // SAFETY: as above.
    unsafe { cudaGetDevice(device) }
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceSynchronize() -> c_int {
    report_code(state::current_device().and_then(|device| {
        let mut memory = state::lock_memory();
        memory.accounts.enter(device)?;
        memory.trim_pools(device);
        Ok(())
    }))
}

/// Everything of the device would have to be freed; programs that go on afterwards are not served.
#[unsafe(no_mangle)]
extern "C" fn cudaDeviceReset() -> c_int {
    report_code(state::current_device().map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cudaSetDeviceFlags(_flags: c_uint) -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDeviceFlags(flags: *mut c_uint) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    report_code(unsafe { Slot::new(flags) }.map(|place| place.put(0)))
}

/// Stack, printf buffer and heap as the CUDA C++ Programming Guide gives their defaults; limits that programs seldom ask
/// for are zero.
pub fn device_limit(limit: c_int) -> Result<usize> {
    match limit {
        0 => Ok(1024),
        1 => Ok(1 << 20),
        2 => Ok(8 << 20),
        3..=6 => Ok(0),
        _ => Err(Error::INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDeviceGetLimit(value: *mut usize, limit: c_int) -> c_int {
    // SAFETY: as above.
    let place = unsafe { Slot::new(value) };
    report_code(place.and_then(|place| place.give(device_limit(limit)?)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceSetLimit(limit: c_int, _value: usize) -> c_int {
    report_code(device_limit(limit).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceSetCacheConfig(_config: c_int) -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(can) };
    report_code(place.and_then(|place| {
        let (device, peer) = (state::device_at(device)?.0, state::device_at(peer)?.0);
        place.give(c_int::from(device != peer))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> c_int {
    report_code((|| {
        let (own, peer) = (state::current_device()?, state::device_at(peer)?.0);
        if own == peer || flags != 0 {
            return Err(Error::INVALID_DEVICE);
        }
        state::lock_memory().accounts.enter(peer)?;
        let mut peers = PEERS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if peers.contains(&(own, peer)) {
            return Err(Error::PEER_ALREADY_ENABLED);
        }
        peers.push((own, peer));
        Ok(())
    })())
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceDisablePeerAccess(peer: c_int) -> c_int {
    report_code((|| {
        let pair = (state::current_device()?, state::device_at(peer)?.0);
        let mut peers = PEERS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let at = peers.iter().position(|&other| other == pair).ok_or(Error::PEER_NOT_ENABLED)?;
        peers.remove(at);
        Ok(())
    })())
}

/// Performance rank, access, native atomics, array access: every device reaches every other.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDeviceGetP2PAttribute(value: *mut c_int, attribute: c_int, from: c_int, to: c_int) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(value) };
    report_code(place.and_then(|place| {
        let (from, to) = (state::device_at(from)?.0, state::device_at(to)?.0);
        match attribute {
            _ if from == to => Err(Error::INVALID_DEVICE),
            1 => place.give(0),
            2..=5 => place.give(1),
            _ => Err(Error::INVALID_VALUE),
        }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: c_int) -> c_int {
    let id = state::device_at(device).map(|(_, device)| format!("0000:{:02X}:00.0\0", device.pci_bus()));
    report_code(id.and_then(|id| {
        if text.is_null() || usize::try_from(length).map_or(true, |length| length < id.len()) {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: the caller said that `length` bytes are there, and the text is no longer.
        unsafe { text.cast::<u8>().copy_from_nonoverlapping(id.as_ptr(), id.len()) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDeviceGetByPCIBusId(device: *mut c_int, text: *const c_char) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(device) };
    report_code(place.and_then(|place| {
        if text.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: a string that ends with zero, by the API's contract.
        let text = unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().to_uppercase();
        let devices = &state::config().devices;
        let named = |device: &Device| text.contains(&format!(":{:02X}:00", device.pci_bus()));
        let index = devices.iter().position(named).ok_or(Error::INVALID_DEVICE)?;
        place.give(index as c_int)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(value) };
    report_code(place.and_then(|place| place.give(self::attribute(attribute, device)?)))
}

/// A device attribute by the number that runtime and driver share. What no training program asks for is zero.
pub fn attribute(attribute: c_int, ordinal: c_int) -> Result<c_int> {
    let (_, device) = state::device_at(ordinal)?;
    Ok(match attribute {
        1..=3 => 1024,        // threads of a block, and its x and y
        4 => 64,              // z of a block
        5 | 11 => c_int::MAX, // x of a grid, pitch
        6 | 7 => 65_535,      // y and z of a grid
        8 => 49_152,          // shared memory of a block
        9 => 65_536,          // constant memory
        10 => 32,             // warp
        12 | 82 => 65_536,    // registers of a block, of a multiprocessor
        13 => 1_980_000,      // clock, kHz
        14 => 512,            // texture alignment
        16 => device.multiprocessors,
        15 | 19 | 31 | 41 | 78..=80 | 83 | 90 | 91 | 95 | 99 | 115 | 125 => 1,
        33 => device.pci_bus(),
        36 => 2_619_000, // memory clock, kHz
        37 => 6144,      // bus, bits
        38 => device.l2_cache,
        39 => device.threads_per_multiprocessor,
        40 => 3,  // copy engines
        51 => 32, // texture pitch alignment
        75 => device.compute_capability.0,
        76 => device.compute_capability.1,
        81 => device.shared_memory_per_multiprocessor,
        97 => device.shared_memory_per_block_optin(),
        // The driver's: virtual memory management. Sharing handles with other processes is not possible.
        102 => 1,
        106 => device.blocks_per_multiprocessor(),
        111 => 1024,                                          // shared memory that the system keeps
        120 => c_int::from(device.compute_capability.0 >= 9), // clusters
        0 => return Err(Error::INVALID_VALUE),
        other if other < 0 => return Err(Error::INVALID_VALUE),
        _ => 0,
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> c_int {
    report_code(state::current_device().and_then(|device| {
        let (left, all) = state::lock_memory().accounts.free_and_total(device)?;
        // SAFETY: places for results by the API's contract.
        unsafe {
            put_if_wanted(free, left as usize);
            put_if_wanted(total, all as usize);
        }
        if free.is_null() || total.is_null() { Err(Error::INVALID_VALUE) } else { Ok(()) }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cudaProfilerStart() -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaProfilerStop() -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetExportTable(table: *mut *const c_void, id: *const [u8; 16]) -> c_int {
    // SAFETY: a place and an identifier by the API's contract.
    let known = unsafe { read(id) }.and_then(|_| unsafe { Slot::new(table) });
    report_code(known.and_then(|place| {
        place.put(std::ptr::null());
        Err(Error::NOT_SUPPORTED)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_unknown_devices_are_refused() {
        // SAFETY: null is what is tested; other places are locals.
        unsafe {
            assert_eq!(cudaGetDeviceCount(std::ptr::null_mut()), 1);
            assert_eq!(cudaGetDevice(std::ptr::null_mut()), 1);
            assert_eq!(cudaDeviceGetAttribute(std::ptr::null_mut(), 1, 0), 1);
            assert_eq!(cudaMemGetInfo(std::ptr::null_mut(), std::ptr::null_mut()), 1);
            let mut value = 0;
            assert_eq!(cudaDeviceGetAttribute(&raw mut value, 1, 1), 101);
            assert_eq!(cudaDeviceGetAttribute(&raw mut value, -3, 0), 1);
            assert_eq!((cudaDeviceGetAttribute(&raw mut value, 75, 0), value), (0, 9));
            assert_eq!((cudaGetDeviceCount(&raw mut value), value), (0, 1));
            assert_eq!(cudaDeviceGetByPCIBusId(&raw mut value, c"0000:09:00.0".as_ptr()), 101);
            let mut text = [0; 16];
            assert_eq!(cudaDeviceGetPCIBusId(text.as_mut_ptr(), 5, 0), 1);
            assert_eq!(cudaDeviceGetPCIBusId(text.as_mut_ptr(), 16, 0), 0);
            value = 7;
            assert_eq!((cudaDeviceGetByPCIBusId(&raw mut value, text.as_ptr()), value), (0, 0));
        }
        assert_eq!(cudaSetDevice(1), 101);
        assert_eq!(cudaSetDevice(-1), 101);
        assert_eq!(cudaDeviceEnablePeerAccess(0, 0), 101);
        assert_eq!(cudaDeviceSetLimit(99, 1), 1);
    }
}
