//! Allocations: what `cudaMalloc` and its relatives hand out, and which addresses are accessible.

use super::{GRANULARITY, Memory, rounded_pages};
use crate::error::{Error, Result};

/// An accessible range, known by its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub bytes: usize,
    pub device: usize,
    pub kind: Kind,
}

/// How a block came to be, and so how it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `cudaMalloc`.
    Device,
    /// A module's variables.
    Symbol,
    /// `cudaMallocManaged`: not charged, because pages move to the device only when kernels touch them.
    Managed,
    /// `cudaMallocAsync`, of the pool with this handle and for this many bytes.
    Pool(usize, u64),
    /// `cuMemMap` of the physical memory with this handle.
    Mapped(u64),
    /// Another process's, by its number and address there, opened so often.
    Shared((u64, u64), u32),
}

impl Memory {
    /// Memory of a device; rounded up as the driver rounds. No bytes are no address, which is no error.
    pub fn allocate(&mut self, device: usize, bytes: usize) -> Result<usize> {
        self.accounts.enter(device)?;
        if bytes == 0 {
            return Ok(0);
        }
        let rounded = rounded_pages(bytes).ok_or(Error::OUT_OF_MEMORY)?;
        self.accounts.charge(device, rounded as u64)?;
        let address = self.place(device, rounded, Kind::Device);
        if address.is_err() {
            self.accounts.release(device, rounded as u64);
        }
        self.note("allocate", bytes, address.unwrap_or(0), device);
        address
    }

    pub fn allocate_managed(&mut self, device: usize, bytes: usize) -> Result<usize> {
        self.accounts.enter(device)?;
        if bytes == 0 {
            return Err(Error::INVALID_VALUE);
        }
        self.place(device, rounded_pages(bytes).ok_or(Error::OUT_OF_MEMORY)?, Kind::Managed)
    }

    /// Memory for symbols, which belong to a module's image and not to an allocation: nothing is charged.
    pub fn symbol(&mut self, bytes: usize) -> Result<usize> {
        self.place(0, rounded_pages(bytes).ok_or(Error::OUT_OF_MEMORY)?, Kind::Symbol)
    }

    /// Finds addresses for a block and makes them accessible.
    pub(super) fn place(&mut self, device: usize, bytes: usize, kind: Kind) -> Result<usize> {
        debug_assert_eq!(bytes % GRANULARITY, 0);
        let address = self.space.take(bytes).ok_or(Error::OUT_OF_MEMORY)?;
        if !self.space.open(address, bytes) {
            return Err(Error::OUT_OF_MEMORY);
        }
        self.blocks.insert(address, Block { bytes, device, kind });
        Ok(address)
    }

    /// `cudaFree`: null is no error; an address that starts no allocation is.
    pub fn free(&mut self, address: usize) -> Result {
        if address == 0 {
            return Ok(());
        }
        let block = *self.blocks.get(&address).ok_or(Error::INVALID_VALUE)?;
        match block.kind {
            Kind::Mapped(_) | Kind::Symbol | Kind::Shared(..) => return Err(Error::INVALID_VALUE),
            Kind::Device => self.accounts.release(block.device, block.bytes as u64),
            Kind::Pool(pool, bytes) => self.give_back(pool, bytes),
            Kind::Managed => (),
        }
        self.blocks.remove(&address);
        self.recent.forget(address, block.bytes);
        self.space.close(address, block.bytes);
        self.note("free", block.bytes, address, block.device);
        Ok(())
    }

    /// The block that holds this address, with its start.
    pub fn block_at(&self, address: usize) -> Option<(usize, Block)> {
        let (&start, &block) = self.blocks.range(..=address).next_back()?;
        (address - start < block.bytes).then_some((start, block))
    }

    /// Whether the address lies in our address space, accessible or not.
    pub fn owns(&self, address: usize) -> bool {
        self.space.owns(address)
    }

    /// Whether all of a range is accessible: neighbouring blocks, as expandable segments map them, count as one range.
    pub fn covers(&self, address: usize, bytes: usize) -> bool {
        let Some(end) = address.checked_add(bytes) else { return false };
        let mut at = address;
        while at < end {
            match self.block_at(at) {
                Some((start, block)) => at = start + block.bytes,
                None => return false,
            }
        }
        true
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
    fn capacity_is_a_true_limit() {
        let mut memory = memory("total=10485760,context=2097152");
        let first = memory.allocate(0, 1).unwrap();
        let second = memory.allocate(0, 2 << 20).unwrap();
        assert_eq!(second, first + GRANULARITY);
        assert_eq!(memory.allocate(0, (4 << 20) + 1), Err(Error::OUT_OF_MEMORY));
        assert_eq!(memory.allocate(0, usize::MAX), Err(Error::OUT_OF_MEMORY));
        memory.free(first).unwrap();
        assert_eq!(memory.free(first), Err(Error::INVALID_VALUE));
        assert_eq!(memory.free(second + 8), Err(Error::INVALID_VALUE));
        assert!(memory.allocate(0, (4 << 20) + 1).is_ok());
        assert_eq!(memory.allocate(1, 1), Err(Error::INVALID_DEVICE));
        assert_eq!(memory.allocate(0, 0), Ok(0));
        assert_eq!(memory.free(0), Ok(()));
    }

    #[test]
    fn a_range_over_neighbours_is_covered_and_a_hole_is_not() {
        let mut memory = memory("total=1073741824");
        let blocks: Vec<usize> = (0..3).map(|_| memory.allocate(0, GRANULARITY).unwrap()).collect();
        assert!(memory.covers(blocks[0] + 5, 2 * GRANULARITY));
        memory.free(blocks[1]).unwrap();
        assert!(!memory.covers(blocks[0] + 5, 2 * GRANULARITY));
        assert!(!memory.covers(blocks[2], GRANULARITY + 1));
        assert!(!memory.covers(usize::MAX - 1, 8));
        assert!(memory.owns(blocks[1]));
    }
}
