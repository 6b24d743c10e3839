//! Copies from the host that are too large to be performed, but that may be read back at once: a program that sends a
//! table of sizes to the device, has it broadcast, and reads it (DistributedDataParallel does so with its parameters'
//! shapes) must find its own table. Nothing but a kernel could have changed it, so the first launch forgets all.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Memory, copy::PERFORMED};

/// The largest copy that is remembered, in bytes, and how many are.
const LARGEST: usize = 1 << 20;
const KEPT: usize = 16;

/// Whether anything is remembered, so that launches need no lock otherwise.
static REMEMBERED: AtomicBool = AtomicBool::new(false);

/// What was copied, by address, oldest first.
#[derive(Default)]
pub struct Recent {
    copies: Vec<(usize, Vec<u8>)>,
}

impl Recent {
    pub fn is_kept(bytes: usize) -> bool {
        bytes > PERFORMED && bytes <= LARGEST
    }

    /// The range now holds these bytes.
    pub fn remember(&mut self, address: usize, bytes: Vec<u8>) {
        self.forget(address, bytes.len());
        if self.copies.len() == KEPT {
            self.copies.remove(0);
        }
        self.copies.push((address, bytes));
        REMEMBERED.store(true, Ordering::Relaxed);
    }

    /// The range was changed.
    pub fn forget(&mut self, address: usize, bytes: usize) {
        self.copies.retain(|(start, kept)| address >= start + kept.len() || *start >= address.saturating_add(bytes));
    }

    /// What the range holds, if that is known.
    pub fn find(&self, address: usize, bytes: usize) -> Option<&[u8]> {
        self.copies.iter().find_map(|(start, kept)| {
            let from = address.checked_sub(*start)?;
            kept.get(from..from.checked_add(bytes)?)
        })
    }
}

impl Memory {
    pub fn forget_all(&mut self) {
        self.recent = Recent::default();
    }
}

/// To be called where device memory may change without our seeing it. True: [`Memory::forget_all`] is due.
pub fn must_forget() -> bool {
    REMEMBERED.load(Ordering::Relaxed) && REMEMBERED.swap(false, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_known_until_it_changes() {
        let mut recent = Recent::default();
        recent.remember(1000, (0..100).collect());
        assert_eq!(recent.find(1010, 3), Some(&[10, 11, 12][..]));
        assert_eq!(recent.find(1099, 2), None);
        recent.forget(1100, 5);
        assert!(recent.find(1000, 100).is_some());
        recent.forget(990, 11);
        assert_eq!(recent.find(1010, 3), None);
        for at in 0..40 {
            recent.remember(at * 10, vec![0; 10]);
        }
        assert_eq!(recent.copies.len(), KEPT);
        assert!(!Recent::is_kept(PERFORMED) && !Recent::is_kept(LARGEST + 1));
    }
}
