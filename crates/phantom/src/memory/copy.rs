//! Copies and fills. Small ones are performed, so that a scalar written by the host reads back; large ones touch nothing
//! on the device, and the host reads zeros.

use super::Memory;
use crate::error::{Error, Result};

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

/// Copies as far as copies are performed.
///
/// # Safety
/// Ranges outside the device have to be valid for `bytes`: what CUDA asks of its caller.
pub unsafe fn copy(memory: &Memory, to: usize, from: usize, bytes: usize) -> Result {
    if bytes == 0 {
        return Ok(());
    }
    let places = (memory.place_of(to, bytes)?, memory.place_of(from, bytes)?);
    let (target, source) = (to as *mut u8, from as *const u8);
    match places {
        // SAFETY: each side is either a fully accessible device range or the caller's, who vouches for it; overlap is
        // allowed here.
        (Place::Host, Place::Host) => unsafe { target.copy_from(source, bytes) },
        // SAFETY: as above.
        _ if bytes <= PERFORMED => unsafe { target.copy_from(source, bytes) },
        // SAFETY: the caller vouches for its host range.
        (Place::Host, Place::Device) => unsafe { target.write_bytes(0, bytes) },
        (Place::Device, _) => (),
    }
    Ok(())
}

/// Fills device memory as far as fills are performed; host memory is filled.
///
/// # Safety
/// As for [`copy`].
pub unsafe fn fill(memory: &Memory, to: usize, value: u8, bytes: usize) -> Result {
    if bytes == 0 {
        return Ok(());
    }
    let place = memory.place_of(to, bytes)?;
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

    #[test]
    fn scalars_read_back_and_bulk_reads_as_zero() {
        let mut memory = Memory::without_ledger(&Config::read(|_| None).unwrap());
        let device = memory.allocate(0, 8 << 20).unwrap();
        let mut host = vec![7_u8; 8192];
        let at = host.as_mut_ptr() as usize;
        // SAFETY: `host` has 8192 bytes, and the device ranges are checked by `copy` itself.
        unsafe {
            copy(&memory, device, at, 4).unwrap();
            copy(&memory, device + 4, at, 8192).unwrap();
            copy(&memory, at, device, 8).unwrap();
            assert_eq!(host[..9], [7, 7, 7, 7, 0, 0, 0, 0, 7]);
            copy(&memory, at, device, 8192).unwrap();
            assert!(host.iter().all(|&byte| byte == 0));
            fill(&memory, device, 9, 2).unwrap();
            copy(&memory, at, device, 1).unwrap();
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
            assert_eq!(copy(&memory, at, device + (2 << 20) - 8, 16), Err(Error::INVALID_VALUE));
            assert_eq!(copy(&memory, 0, device, 16), Err(Error::INVALID_VALUE));
            memory.free(device).unwrap();
            assert_eq!(copy(&memory, at, device, 16), Err(Error::INVALID_VALUE));
            assert_eq!(fill(&memory, device, 1, 16), Err(Error::INVALID_VALUE));
            assert_eq!(copy(&memory, at, device, 0), Ok(()));
        }
    }
}
