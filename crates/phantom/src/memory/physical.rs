//! Virtual memory management (`cuMem*`), on which PyTorch's expandable segments stand: addresses and memory are had apart
//! and joined by mapping.

use super::{Block, GRANULARITY, Kind, Memory};
use crate::error::{Error, Result};

/// Memory without an address. It is given back when its handle is released and nothing maps it.
pub struct Physical {
    bytes: usize,
    device: usize,
    mappings: usize,
    references: usize,
}

impl Memory {
    /// `cuMemAddressReserve`; a wish for an address is only a wish, and is not granted.
    pub fn reserve(&mut self, bytes: usize) -> Result<usize> {
        whole_pages(bytes)?;
        let start = self.space.take(bytes).ok_or(Error::OUT_OF_MEMORY)?;
        self.reservations.insert(start, bytes);
        Ok(start)
    }

    /// `cuMemAddressFree`: all of a reservation, with nothing mapped into it.
    pub fn unreserve(&mut self, start: usize, bytes: usize) -> Result {
        let mapped = self.blocks.range(start..start.saturating_add(bytes)).next().is_some();
        if self.reservations.get(&start) != Some(&bytes) || mapped {
            return Err(Error::INVALID_VALUE);
        }
        self.reservations.remove(&start);
        Ok(())
    }

    /// `cuMemCreate`.
    pub fn create(&mut self, device: usize, bytes: usize) -> Result<u64> {
        whole_pages(bytes)?;
        self.accounts.charge(device, bytes as u64)?;
        let handle = self.next_handle;
        self.next_handle += 1;
        self.physical.insert(handle, Physical { bytes, device, mappings: 0, references: 1 });
        self.note("create", bytes, 0, device);
        Ok(handle)
    }

    /// `cuMemRelease`.
    pub fn release(&mut self, handle: u64) -> Result {
        let physical = self.physical.get_mut(&handle).filter(|it| it.references > 0).ok_or(Error::INVALID_VALUE)?;
        physical.references -= 1;
        self.drop_if_unused(handle);
        Ok(())
    }

    /// `cuMemMap` and, because PyTorch gives access at once, access too. Overlap is an error, as is what lies outside a
    /// reservation.
    pub fn map(&mut self, start: usize, bytes: usize, offset: usize, handle: u64) -> Result {
        whole_pages(bytes)?;
        let end = start.checked_add(bytes).ok_or(Error::INVALID_VALUE)?;
        let physical = self.physical.get(&handle).ok_or(Error::INVALID_VALUE)?;
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= physical.bytes);
        let taken = self.block_at(start).is_some() || self.blocks.range(start..end).next().is_some();
        if !fits || taken || !start.is_multiple_of(GRANULARITY) || !self.is_reserved(start, end) {
            return Err(Error::INVALID_VALUE);
        }
        if !self.space.open(start, bytes) {
            return Err(Error::OUT_OF_MEMORY);
        }
        let device = physical.device;
        self.blocks.insert(start, Block { bytes, device, kind: Kind::Mapped(handle) });
        if let Some(physical) = self.physical.get_mut(&handle) {
            physical.mappings += 1;
        }
        Ok(())
    }

    /// `cuMemUnmap`: whole mappings, one or several side by side.
    pub fn unmap(&mut self, start: usize, bytes: usize) -> Result {
        let end = start.checked_add(bytes).ok_or(Error::INVALID_VALUE)?;
        let mapped: Vec<(usize, usize, u64)> = self
            .blocks
            .range(start..end)
            .filter_map(|(&start, block)| match block.kind {
                Kind::Mapped(handle) => Some((start, block.bytes, handle)),
                _ => None,
            })
            .collect();
        let total: usize = mapped.iter().map(|&(_, bytes, _)| bytes).sum();
        if bytes == 0 || total != bytes || mapped[0].0 != start {
            return Err(Error::INVALID_VALUE);
        }
        for (start, bytes, handle) in mapped {
            self.blocks.remove(&start);
            self.space.close(start, bytes);
            if let Some(physical) = self.physical.get_mut(&handle) {
                physical.mappings -= 1;
            }
            self.drop_if_unused(handle);
        }
        Ok(())
    }

    /// `cuMemRetainAllocationHandle`.
    pub fn retain(&mut self, address: usize) -> Result<u64> {
        match self.block_at(address) {
            Some((_, Block { kind: Kind::Mapped(handle), .. })) => {
                if let Some(physical) = self.physical.get_mut(&handle) {
                    physical.references += 1;
                }
                Ok(handle)
            }
            _ => Err(Error::INVALID_VALUE),
        }
    }

    /// The device that holds the memory of a handle.
    pub fn device_of_handle(&self, handle: u64) -> Result<usize> {
        self.physical.get(&handle).map(|physical| physical.device).ok_or(Error::INVALID_VALUE)
    }

    fn is_reserved(&self, start: usize, end: usize) -> bool {
        let reservation = self.reservations.range(..=start).next_back();
        reservation.is_some_and(|(from, bytes)| end <= from + bytes)
    }

    fn drop_if_unused(&mut self, handle: u64) {
        let unused = |physical: &Physical| physical.references == 0 && physical.mappings == 0;
        if let Some(physical) = self.physical.get(&handle).filter(|it| unused(it)) {
            let (device, bytes) = (physical.device, physical.bytes);
            self.accounts.release(device, bytes as u64);
            self.physical.remove(&handle);
            self.note("release", bytes, 0, device);
        }
    }
}

fn whole_pages(bytes: usize) -> Result {
    if bytes > 0 && bytes.is_multiple_of(GRANULARITY) { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn memory() -> Memory {
        let text = "total=20971520".to_owned();
        Memory::without_ledger(&Config::read(|name| (name == "TONNAGE_PHANTOM_DEVICES").then(|| text.clone())).unwrap())
    }

    #[test]
    fn memory_lives_until_it_is_released_and_unmapped() {
        let mut memory = memory();
        let start = memory.reserve(1 << 40).unwrap();
        let handle = memory.create(0, 20 << 20).unwrap();
        assert_eq!(memory.create(0, GRANULARITY), Err(Error::OUT_OF_MEMORY));
        memory.map(start, 20 << 20, 0, handle).unwrap();
        assert!(memory.covers(start, 20 << 20));
        memory.release(handle).unwrap();
        assert_eq!(memory.release(handle), Err(Error::INVALID_VALUE));
        assert_eq!(memory.create(0, GRANULARITY), Err(Error::OUT_OF_MEMORY));
        memory.unmap(start, 20 << 20).unwrap();
        assert!(memory.create(0, GRANULARITY).is_ok());
        memory.unreserve(start, 1 << 40).unwrap();
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut memory = memory();
        let start = memory.reserve(4 << 20).unwrap();
        let handle = memory.create(0, 4 << 20).unwrap();
        assert_eq!(memory.reserve(5), Err(Error::INVALID_VALUE));
        assert_eq!(memory.map(start, 6 << 20, 0, handle), Err(Error::INVALID_VALUE));
        assert_eq!(memory.map(start, 4 << 20, 2 << 20, handle), Err(Error::INVALID_VALUE));
        assert_eq!(memory.map(start + (2 << 20), 4 << 20, 0, handle), Err(Error::INVALID_VALUE));
        assert_eq!(memory.map(start, 2 << 20, 0, 99), Err(Error::INVALID_VALUE));
        memory.map(start, 2 << 20, 0, handle).unwrap();
        assert_eq!(memory.map(start, 2 << 20, 0, handle), Err(Error::INVALID_VALUE));
        assert_eq!(memory.unmap(start, 4 << 20), Err(Error::INVALID_VALUE));
        assert_eq!(memory.unreserve(start, 4 << 20), Err(Error::INVALID_VALUE));
        assert_eq!(memory.free(start), Err(Error::INVALID_VALUE));
        assert_eq!(memory.retain(start), Ok(handle));
        assert_eq!(memory.unmap(start, 0), Err(Error::INVALID_VALUE));
    }
}
