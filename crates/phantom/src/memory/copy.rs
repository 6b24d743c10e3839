//! Copies and fills. Small ones are performed, so that a scalar written by the host reads back; large ones touch nothing
//! on the device, and the host reads zeros.

use std::ffi::c_void;

use super::answer::small_answer;
use super::{Memory, Recent};
use crate::error::{Error, Result};
use crate::sys;

/// The page that the kernel maps: of every machine that CUDA's x86 and Grace libraries run on, or a divisor of it.
const PAGE: usize = 4096;

/// The largest copy that is performed, in bytes: a page, so that scalars, seeds and small tables survive.
pub const PERFORMED: usize = 4096;

/// Where one side of a copy lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Host,
    Device,
}

impl Memory {
    /// Where a range lies; an error if it is in our address space and not all of it is accessible.
    pub fn place_of(&self, address: usize, bytes: usize) -> Result<Place> {
        if address == 0 {
            Err(Error::INVALID_VALUE)
        } else if !self.owns(address) {
            Ok(Place::Host)
        } else if self.covers(address, bytes) {
            Ok(Place::Device)
        } else {
            Err(Error::INVALID_VALUE)
        }
    }
}

/// What a copy or a fill asks of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Memory of a device, or page-locked memory that a device can reach.
    Device,
    /// Any memory of the process.
    Any,
}

impl Memory {
    /// The same, of a side: what no device can reach is no device's memory, and what is not mapped is nobody's.
    fn side(&self, address: usize, bytes: usize, side: Side) -> Result<Place> {
        let place = self.place_of(address, bytes)?;
        let is_valid = match (place, side) {
            (Place::Device, _) => true,
            (Place::Host, Side::Device) => {
                last_byte(address, bytes).is_some_and(|last| self.host.holds(address) && self.host.holds(last))
            }
            (Place::Host, Side::Any) => is_mapped(address, bytes),
        };
        if is_valid { Ok(place) } else { Err(Error::INVALID_VALUE) }
    }
}

fn last_byte(address: usize, bytes: usize) -> Option<usize> {
    address.checked_add(bytes.checked_sub(1)?)
}

/// Whether the ends of a range are mapped; what lies between is the caller's word.
fn is_mapped(address: usize, bytes: usize) -> bool {
    let Some(last) = last_byte(address, bytes) else { return false };
    [address, last].into_iter().all(|address| {
        let mut resident = 0_u8;
        let page = address & !(PAGE - 1);
        // SAFETY: the kernel looks the page up and writes one byte for one page.
        unsafe { sys::mincore(page as *mut c_void, PAGE, &raw mut resident) == 0 }
    })
}

/// Copies as far as copies are performed, `sides` being what the call says of its target and its source.
///
/// # Safety
/// Ranges outside the device have to be valid for `bytes`: what CUDA asks of its caller.
pub unsafe fn copy_bytes(memory: &mut Memory, to: usize, from: usize, bytes: usize, sides: (Side, Side)) -> Result {
    if bytes == 0 {
        return Ok(());
    }
    let places = (memory.side(to, bytes, sides.0)?, memory.side(from, bytes, sides.1)?);
    let (target, source) = (to as *mut u8, from as *const u8);
    if let ((Place::Host, Place::Device), Some(known)) = (places, small_answer(bytes)) {
        // SAFETY: the caller vouches for its host range of `bytes`, which are no more than an answer has.
        unsafe { target.copy_from_nonoverlapping(known.as_ptr(), bytes) };
        return Ok(());
    }
    if bytes <= PERFORMED || places == (Place::Host, Place::Host) {
        memory.recent.forget(to, bytes);
        // SAFETY: each side is either a fully accessible device range or the caller's, who vouches for it; overlap is
        // allowed here.
        unsafe { target.copy_from(source, bytes) };
        return Ok(());
    }
    match places {
        // SAFETY: the caller vouches for its host range, which what is remembered or zeros fill.
        (Place::Host, _) => unsafe {
            match memory.recent.find(from, bytes) {
                Some(known) => target.copy_from_nonoverlapping(known.as_ptr(), bytes),
                None => target.write_bytes(0, bytes),
            }
        },
        (Place::Device, Place::Host) if Recent::is_kept(bytes) => {
            // SAFETY: the caller vouches for its host range.
            let kept = unsafe { std::slice::from_raw_parts(source, bytes) }.to_vec();
            memory.recent.remember(to, kept);
        }
        (Place::Device, Place::Host) => memory.recent.forget(to, bytes),
        (Place::Device, Place::Device) => match memory.recent.find(from, bytes).map(<[u8]>::to_vec) {
            Some(known) => memory.recent.remember(to, known),
            None => memory.recent.forget(to, bytes),
        },
    }
    Ok(())
}

/// Fills device memory as far as fills are performed; host memory is filled.
///
/// # Safety
/// As for [`copy`].
pub unsafe fn fill_bytes(memory: &mut Memory, to: usize, value: u8, bytes: usize) -> Result {
    if bytes == 0 {
        return Ok(());
    }
    let place = memory.side(to, bytes, Side::Device)?;
    memory.recent.forget(to, bytes);
    if bytes <= PERFORMED || place == Place::Host {
        // SAFETY: a fully accessible device range, or the caller's.
        unsafe { (to as *mut u8).write_bytes(value, bytes) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const ANY: (Side, Side) = (Side::Any, Side::Any);

    #[test]
    fn scalars_read_back_and_bulk_reads_as_zero() {
        let mut memory = Memory::without_ledger(&Config::read(|_| None).unwrap());
        let device = memory.allocate(0, 8 << 20).unwrap();
        let mut host = vec![7_u8; 8192];
        let at = host.as_mut_ptr() as usize;
        // SAFETY: `host` has 8192 bytes, and the device ranges are checked by `copy` itself.
        unsafe {
            copy_bytes(&mut memory, device, at, 4, ANY).unwrap();
            copy_bytes(&mut memory, at, device, 8, ANY).unwrap();
            assert_eq!(host[..9], [7, 7, 7, 7, 0, 0, 0, 0, 7]);
            copy_bytes(&mut memory, at, device, 8192, ANY).unwrap();
            assert!(host.iter().all(|&byte| byte == 0));
            host.fill(5);
            copy_bytes(&mut memory, device + 4096, at, 8192, ANY).unwrap();
            copy_bytes(&mut memory, device + 65536, device + 4096, 8192, ANY).unwrap();
            host.fill(0);
            copy_bytes(&mut memory, at, device + 65536, 8192, ANY).unwrap();
            assert!(host.iter().all(|&byte| byte == 5));
            memory.forget_all();
            copy_bytes(&mut memory, at, device + 4096, 8192, ANY).unwrap();
            assert!(host.iter().all(|&byte| byte == 0));
            fill_bytes(&mut memory, device, 9, 2).unwrap();
            copy_bytes(&mut memory, at, device, 1, ANY).unwrap();
            assert_eq!(host[0], 9);
        }
    }

    #[test]
    fn ranges_that_are_not_all_there_are_refused() {
        let mut memory = Memory::without_ledger(&Config::read(|_| None).unwrap());
        let device = memory.allocate(0, 2 << 20).unwrap();
        let mut host = [0_u8; 16];
        let at = host.as_mut_ptr() as usize;
        // SAFETY: every call is refused before memory is touched, or touches `host`'s 16 bytes only.
        unsafe {
            assert_eq!(copy_bytes(&mut memory, at, device + (2 << 20) - 8, 16, ANY), Err(Error::INVALID_VALUE));
            assert_eq!(copy_bytes(&mut memory, 0, device, 16, ANY), Err(Error::INVALID_VALUE));
            memory.free(device).unwrap();
            assert_eq!(copy_bytes(&mut memory, at, device, 16, ANY), Err(Error::INVALID_VALUE));
            assert_eq!(fill_bytes(&mut memory, device, 1, 16), Err(Error::INVALID_VALUE));
            assert_eq!(copy_bytes(&mut memory, at, device, 0, ANY), Ok(()));
        }
    }

    #[test]
    fn what_is_no_device_memory_is_refused_and_not_touched() {
        let mut memory = Memory::without_ledger(&Config::read(|_| None).unwrap());
        let device = memory.allocate(0, 2 << 20).unwrap();
        let mut host = [7_u8; 16];
        let at = host.as_mut_ptr() as usize;
        let (device_side, wild) = ((Side::Device, Side::Any), 0x10);
        // SAFETY: every call is refused before memory is touched.
        unsafe {
            assert_eq!(fill_bytes(&mut memory, at, 1, 16), Err(Error::INVALID_VALUE));
            assert_eq!(fill_bytes(&mut memory, wild, 1, 16), Err(Error::INVALID_VALUE));
            assert_eq!(copy_bytes(&mut memory, at, device, 16, device_side), Err(Error::INVALID_VALUE));
            assert_eq!(copy_bytes(&mut memory, at, at, 16, (Side::Any, Side::Device)), Err(Error::INVALID_VALUE));
            for wild in [wild, usize::MAX, usize::MAX - 4096, 1 << 62] {
                assert_eq!(copy_bytes(&mut memory, device, wild, 16, ANY), Err(Error::INVALID_VALUE));
                assert_eq!(copy_bytes(&mut memory, wild, device, 16, ANY), Err(Error::INVALID_VALUE));
            }
        }
        assert_eq!(host, [7; 16]);
        let locked = memory.host.allocate(64).unwrap();
        // SAFETY: page-locked memory of 64 bytes, which a device reaches.
        unsafe {
            assert_eq!(fill_bytes(&mut memory, locked, 1, 64), Ok(()));
            assert_eq!(fill_bytes(&mut memory, locked, 1, 65), Err(Error::INVALID_VALUE));
        }
        memory.host.free(locked).unwrap();
    }
}
