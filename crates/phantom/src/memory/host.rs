//! Page-locked host memory: ordinary memory with a note that it is known to CUDA.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;

use crate::error::{Error, Result};

/// The driver hands out whole pages.
const PAGE: usize = 4096;

/// What was allocated here or registered, by start.
#[derive(Default)]
pub struct HostBlocks {
    blocks: BTreeMap<usize, HostBlock>,
}

struct HostBlock {
    bytes: usize,
    /// Ours to free; registered memory is its owner's.
    allocated: bool,
}

impl HostBlocks {
    pub fn allocate(&mut self, bytes: usize) -> Result<usize> {
        let layout = layout(bytes)?;
        // SAFETY: the layout has a size other than zero.
        let start = unsafe { alloc(layout) } as usize;
        if start == 0 {
            return Err(Error::OUT_OF_MEMORY);
        }
        self.blocks.insert(start, HostBlock { bytes, allocated: true });
        Ok(start)
    }

    pub fn free(&mut self, start: usize) -> Result {
        if start == 0 {
            return Ok(());
        }
        let block = self.blocks.get(&start).filter(|block| block.allocated).ok_or(Error::INVALID_VALUE)?;
        let layout = layout(block.bytes)?;
        self.blocks.remove(&start);
        // SAFETY: `allocate` made it with the same layout, and it has just left the table, so it is freed once.
        unsafe { dealloc(start as *mut u8, layout) };
        Ok(())
    }

    pub fn register(&mut self, start: usize, bytes: usize) -> Result {
        if start == 0 || bytes == 0 {
            return Err(Error::INVALID_VALUE);
        }
        if self.holds(start) {
            return Err(Error::HOST_ALREADY_REGISTERED);
        }
        self.blocks.insert(start, HostBlock { bytes, allocated: false });
        Ok(())
    }

    pub fn unregister(&mut self, start: usize) -> Result {
        match self.blocks.get(&start) {
            Some(block) if !block.allocated => {
                self.blocks.remove(&start);
                Ok(())
            }
            _ => Err(Error::HOST_NOT_REGISTERED),
        }
    }

    /// Whether this address is page-locked.
    pub fn holds(&self, address: usize) -> bool {
        self.blocks.range(..=address).next_back().is_some_and(|(start, block)| address - start < block.bytes)
    }
}

fn layout(bytes: usize) -> Result<Layout> {
    Layout::from_size_align(bytes.max(1), PAGE).map_err(|_| Error::OUT_OF_MEMORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registered_and_allocated_memory_go_their_own_ways() {
        let mut host = HostBlocks::default();
        let start = host.allocate(100).unwrap();
        assert_eq!(start % PAGE, 0);
        assert!(host.holds(start + 99) && !host.holds(start + 100));
        assert_eq!(host.unregister(start), Err(Error::HOST_NOT_REGISTERED));
        host.free(start).unwrap();
        assert_eq!(host.free(start), Err(Error::INVALID_VALUE));
        assert_eq!(host.allocate(usize::MAX), Err(Error::OUT_OF_MEMORY));
        host.register(8192, 10).unwrap();
        assert_eq!(host.register(8195, 1), Err(Error::HOST_ALREADY_REGISTERED));
        assert_eq!(host.free(8192), Err(Error::INVALID_VALUE));
        host.unregister(8192).unwrap();
    }
}
