//! Address space: large reservations from which ranges are handed out in ascending order, as the driver does. PyTorch's
//! allocator breaks ties between equal blocks by address, so the order is part of the result.

use std::ffi::c_void;

use crate::sys;

/// The driver's granularity: allocations are rounded up to it, reservations and mappings have to be multiples of it
/// (`cuMemGetAllocationGranularity` of every GPU since Volta).
pub const GRANULARITY: usize = 2 << 20;
/// A reservation holds many devices' worth, out of a process's 128 TiB.
const RESERVATION: usize = 1 << 44;

/// Bytes rounded up to the granularity, if they fit a `usize`.
pub fn rounded_pages(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(GRANULARITY)
}

/// What was reserved from the system, and how much of the newest reservation is left.
#[derive(Default)]
pub struct Space {
    reserved: Vec<(usize, usize)>,
    next: usize,
    left: usize,
}

impl Space {
    /// A range that nobody else has; not accessible yet. None where the system has no more addresses.
    pub fn take(&mut self, bytes: usize) -> Option<usize> {
        if self.left < bytes {
            self.reserve(bytes)?;
        }
        let start = self.next;
        self.next += bytes;
        self.left -= bytes;
        Some(start)
    }

    /// A limit on address space (`ulimit -v`) makes large reservations fail: smaller ones are tried.
    fn reserve(&mut self, at_least: usize) -> Option<()> {
        let at_least = at_least.checked_add(GRANULARITY)?;
        let mut length = RESERVATION.max(at_least);
        let start = loop {
            if let Some(start) = map_pages(length) {
                break start;
            }
            length /= 2;
            if length < at_least {
                return None;
            }
        };
        let aligned = start.checked_next_multiple_of(GRANULARITY)?;
        self.reserved.push((start, length));
        self.next = aligned;
        self.left = length - (aligned - start);
        Some(())
    }

    /// Whether this address is of ours, accessible or not.
    pub fn owns(&self, address: usize) -> bool {
        self.reserved.iter().any(|&(start, length)| address.wrapping_sub(start) < length)
    }

    /// Makes a range of ours readable and writable; reads as zero. False where the system refuses.
    pub fn open(&self, start: usize, bytes: usize) -> bool {
        debug_assert!(self.owns(start));
        // SAFETY: the range lies in a reservation of ours; changing its protection touches nobody else's memory.
        unsafe { sys::mprotect(start as *mut c_void, bytes, sys::PROT_READ_WRITE) == 0 }
    }

    /// Takes access away and gives touched pages back.
    pub fn close(&self, start: usize, bytes: usize) {
        debug_assert!(self.owns(start));
        // SAFETY: the range lies in a reservation of ours, and no block covers it any more, so nobody reads it.
        unsafe {
            sys::madvise(start as *mut c_void, bytes, sys::MADV_DONTNEED);
            sys::mprotect(start as *mut c_void, bytes, sys::PROT_NONE);
        }
    }
}

/// The process's own goes when it ends; tests make many, and there are only 128 TiB.
impl Drop for Space {
    fn drop(&mut self) {
        for (start, length) in self.reserved.drain(..) {
            // SAFETY: the mapping is ours alone, and whoever was given a range of it is gone with its owner.
            unsafe { sys::munmap(start as *mut c_void, length) };
        }
    }
}

fn map_pages(length: usize) -> Option<usize> {
    // SAFETY: an anonymous mapping at an address of the system's choice replaces nothing.
    let start =
        unsafe { sys::mmap(std::ptr::null_mut(), length, sys::PROT_NONE, sys::MAP_PRIVATE_ANONYMOUS_NORESERVE, -1, 0) };
    let start = start as usize;
    if start == sys::MAP_FAILED {
        return None;
    }
    // SAFETY: advice on the mapping just made: a core dump need not walk terabytes.
    unsafe { sys::madvise(start as *mut c_void, length, sys::MADV_DONTDUMP) };
    Some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_ascend_and_are_aligned() {
        let mut space = Space::default();
        let first = space.take(GRANULARITY).unwrap();
        let second = space.take(3 * GRANULARITY).unwrap();
        assert_eq!((first % GRANULARITY, second), (0, first + GRANULARITY));
        assert!(space.owns(second) && !space.owns(8));
        assert!(space.take(usize::MAX - 5).is_none());
    }

    #[test]
    fn opened_memory_reads_as_zero_again_after_closing() {
        let mut space = Space::default();
        let start = space.take(GRANULARITY).unwrap();
        for _ in 0..2 {
            assert!(space.open(start, GRANULARITY));
            // SAFETY: the range was opened for reading and writing, and only this test knows it.
            unsafe {
                assert_eq!((start as *mut u64).read(), 0);
                (start as *mut u64).write(7);
            }
            space.close(start, GRANULARITY);
        }
    }
}
