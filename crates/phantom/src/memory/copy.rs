//! Copies and fills. Small ones are performed, so that a scalar written by the host reads back; large ones touch nothing
//! on the device, and the host reads zeros.

use super::{Memory, Recent};
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
pub unsafe fn copy(memory: &mut Memory, to: usize, from: usize, bytes: usize) -> Result {
    if bytes == 0 {
        return Ok(());
    }
    let places = (memory.place_of(to, bytes)?, memory.place_of(from, bytes)?);
    let (target, source) = (to as *mut u8, from as *const u8);
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
pub unsafe fn fill(memory: &mut Memory, to: usize, value: u8, bytes: usize) -> Result {
    if bytes == 0 {
        return Ok(());
    }
    let place = memory.place_of(to, bytes)?;
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

    #[test]
    fn scalars_read_back_and_bulk_reads_as_zero() {
        let mut memory = Memory::without_ledger(&Config::read(|_| None).unwrap());
        let device = memory.allocate(0, 8 << 20).unwrap();
        let mut host = vec![7_u8; 8192];
        let at = host.as_mut_ptr() as usize;
        // SAFETY: `host` has 8192 bytes, and the device ranges are checked by `copy` itself.
        unsafe {
            copy(&mut memory, device, at, 4).unwrap();
            copy(&mut memory, at, device, 8).unwrap();
            assert_eq!(host[..9], [7, 7, 7, 7, 0, 0, 0, 0, 7]);
            copy(&mut memory, at, device, 8192).unwrap();
            assert!(host.iter().all(|&byte| byte == 0));
            host.fill(5);
            copy(&mut memory, device + 4096, at, 8192).unwrap();
            copy(&mut memory, device + 65536, device + 4096, 8192).unwrap();
            host.fill(0);
            copy(&mut memory, at, device + 65536, 8192).unwrap();
            assert!(host.iter().all(|&byte| byte == 5));
            memory.forget_all();
            copy(&mut memory, at, device + 4096, 8192).unwrap();
            assert!(host.iter().all(|&byte| byte == 0));
            fill(&mut memory, device, 9, 2).unwrap();
            copy(&mut memory, at, device, 1).unwrap();
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
            assert_eq!(copy(&mut memory, at, device + (2 << 20) - 8, 16), Err(Error::INVALID_VALUE));
            assert_eq!(copy(&mut memory, 0, device, 16), Err(Error::INVALID_VALUE));
            memory.free(device).unwrap();
            assert_eq!(copy(&mut memory, at, device, 16), Err(Error::INVALID_VALUE));
            assert_eq!(fill(&mut memory, device, 1, 16), Err(Error::INVALID_VALUE));
            assert_eq!(copy(&mut memory, at, device, 0), Ok(()));
        }
    }
}
