//! Memory of another process: a handle names a block of its owner, and whoever opens it gets addresses of its own as large. It is
//! the owner's account that holds the bytes. What either writes does not reach the other: it reads as zero.

use super::Memory;
use super::block::Kind;
use super::space::GRANULARITY;
use crate::error::{Error, Result};

/// Bytes of `cudaIpcMemHandle_t` and of `cudaIpcEventHandle_t`.
pub const HANDLE_BYTES: usize = 64;

/// A handle as it goes to another process, aligned as little as CUDA's: numbers, of which the first tells ours from any other's.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle([u8; HANDLE_BYTES]);

/// First numbers of handles.
const OF_MEMORY: u64 = u64::from_le_bytes(*b"tonnmem1");
const OF_EVENT: u64 = u64::from_le_bytes(*b"tonnevt1");
/// A memory's: what it is, its owner, its address there, its bytes, the device's number on the machine.
const WORDS: usize = 5;

impl Handle {
    fn of_words(words: [u64; WORDS]) -> Self {
        let mut bytes = [0; HANDLE_BYTES];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        Self(bytes)
    }

    fn words(self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        for (word, chunk) in words.iter_mut().zip(self.0.chunks_exact(8)) {
            *word = chunk.try_into().map_or(0, u64::from_le_bytes);
        }
        words
    }

    /// An event's, of which nobody needs to know more: whatever was recorded has happened.
    pub fn of_event() -> Self {
        Self::of_words([OF_EVENT, 0, 0, 0, 0])
    }

    pub fn is_event(self) -> bool {
        self.words()[0] == OF_EVENT
    }
}

impl Memory {
    /// The handle of the whole block that holds an address. Mapped memory (expandable segments) and the host's have none.
    pub fn share(&self, address: usize, process: u32) -> Result<Handle> {
        let (start, block) = self.block_at(address).ok_or(Error::INVALID_VALUE)?;
        match block.kind {
            Kind::Device => {
                let ordinal = self.accounts.ordinal(block.device)? as u64;
                Ok(Handle::of_words([OF_MEMORY, u64::from(process), start as u64, block.bytes as u64, ordinal]))
            }
            Kind::Managed | Kind::Pool(..) | Kind::Mapped(_) | Kind::Symbol | Kind::Shared(..) => {
                Err(Error::INVALID_VALUE)
            }
        }
    }

    /// Addresses for another process's block. The same handle, opened again, gives the same; the context is this process's own.
    pub fn open_shared(&mut self, handle: Handle, process: u32) -> Result<usize> {
        let [kind, owner, start, bytes, ordinal] = handle.words();
        let bytes = usize::try_from(bytes).map_err(|_| Error::INVALID_VALUE)?;
        if kind != OF_MEMORY || bytes == 0 || bytes % GRANULARITY != 0 {
            return Err(Error::INVALID_VALUE);
        }
        if owner == u64::from(process) {
            return Err(Error::INVALID_CONTEXT);
        }
        // The device is not visible in this process, or under another number.
        let device = self.accounts.device_of(ordinal).ok_or(Error::INVALID_DEVICE)?;
        self.accounts.enter(device)?;
        let origin = (owner, start);
        let opened = self.blocks.iter_mut().find_map(|(&address, block)| match &mut block.kind {
            Kind::Shared(of, times) if *of == origin => {
                *times += 1;
                Some(address)
            }
            _ => None,
        });
        match opened {
            Some(address) => Ok(address),
            None => self.place(device, bytes, Kind::Shared(origin, 1)),
        }
    }

    /// Gives back what [`Memory::open_shared`] gave; it goes when it was given back as often.
    pub fn close_shared(&mut self, address: usize) -> Result {
        let block = self.blocks.get_mut(&address).ok_or(Error::INVALID_VALUE)?;
        let Kind::Shared(_, times) = &mut block.kind else { return Err(Error::INVALID_VALUE) };
        *times -= 1;
        if *times == 0 {
            let bytes = block.bytes;
            self.blocks.remove(&address);
            self.recent.forget(address, bytes);
            self.space.close(address, bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn memory(devices: &str) -> Memory {
        let config = Config::read(|name| (name == "TONNAGE_PHANTOM_DEVICES").then(|| devices.to_owned())).unwrap();
        Memory::without_ledger(&config)
    }

    #[test]
    fn the_owner_alone_is_charged() {
        let (mut owner, mut other) =
            (memory("total=67108864,context=2097152"), memory("total=67108864,context=2097152"));
        let block = owner.allocate(0, 3 * GRANULARITY).unwrap();
        let handle = owner.share(block + 5, 1).unwrap();
        let opened = other.open_shared(handle, 2).unwrap();
        assert!(other.covers(opened, 3 * GRANULARITY));
        assert_eq!(other.accounts.used(0), 2 << 20);
        // Opened twice, it is there until it is closed twice; a block of one's own or another's cannot be freed so.
        assert_eq!(other.open_shared(handle, 2), Ok(opened));
        assert_eq!(other.free(opened), Err(Error::INVALID_VALUE));
        assert_eq!(owner.close_shared(block), Err(Error::INVALID_VALUE));
        other.close_shared(opened).unwrap();
        assert!(other.covers(opened, 1));
        other.close_shared(opened).unwrap();
        assert!(!other.covers(opened, 1));
        assert_eq!(other.close_shared(opened), Err(Error::INVALID_VALUE));
        owner.free(block).unwrap();
    }

    #[test]
    fn what_is_no_handle_opens_nothing() {
        let mut memory = memory("total=67108864");
        let block = memory.allocate(0, 1).unwrap();
        let handle = memory.share(block, 1).unwrap();
        assert_eq!(memory.open_shared(handle, 1), Err(Error::INVALID_CONTEXT));
        assert_eq!(memory.open_shared(Handle::of_event(), 2), Err(Error::INVALID_VALUE));
        assert_eq!(memory.open_shared(Handle([0; HANDLE_BYTES]), 2), Err(Error::INVALID_VALUE));
        let huge = Handle::of_words([OF_MEMORY, 1, 0, u64::MAX - u64::MAX % GRANULARITY as u64, 0]);
        assert_eq!(memory.open_shared(huge, 2), Err(Error::OUT_OF_MEMORY));
        let elsewhere = Handle::of_words([OF_MEMORY, 1, 0, GRANULARITY as u64, 7]);
        assert_eq!(memory.open_shared(elsewhere, 2), Err(Error::INVALID_DEVICE));
        let managed = memory.allocate_managed(0, 1).unwrap();
        assert_eq!(memory.share(managed, 1), Err(Error::INVALID_VALUE));
        assert_eq!(memory.share(8, 1), Err(Error::INVALID_VALUE));
    }
}
