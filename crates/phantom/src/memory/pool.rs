//! Pools of `cudaMallocAsync`. Modelled without fragmentation: a pool holds what is used, rounded up to its chunk, and
//! keeps what was freed up to its release threshold when the device is synchronized.

use super::{Kind, Memory, rounded_pages};
use crate::error::{Error, Result};

/// What a pool takes from the device at a time: 32 MiB, the default of CUDA's stream-ordered allocator as observed in
/// its reserved-memory attribute.
const CHUNK: u64 = 32 << 20;
/// Sizes in a pool are multiples of this: `cudaMallocAsync` aligns to 512 bytes.
const ALIGNMENT: u64 = 512;

/// A pool's figures; `cudaMemPoolAttr` names them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pool {
    device: usize,
    used: u64,
    used_high: u64,
    reserved: u64,
    reserved_high: u64,
    release_threshold: u64,
    /// The three reuse switches; all on by default.
    reuse_off: [bool; 3],
}

/// `cudaMemPoolAttr` with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    Switch(i32),
    Amount(u64),
}

impl Memory {
    /// A device's default pool, made when first asked for; its handle is not null.
    pub fn default_pool(&mut self, device: usize) -> usize {
        let handle = 0x1000 + device;
        self.pools.entry(handle).or_insert(Pool { device, ..Pool::default() });
        handle
    }

    pub fn create_pool(&mut self, device: usize) -> usize {
        let handle = 0x1_0000 + usize::try_from(self.next_handle).unwrap_or(0);
        self.next_handle += 1;
        self.pools.insert(handle, Pool { device, ..Pool::default() });
        handle
    }

    pub fn destroy_pool(&mut self, handle: usize) -> Result {
        let pool = self.pools.remove(&handle).ok_or(Error::INVALID_VALUE)?;
        self.accounts.release(pool.device, pool.reserved);
        Ok(())
    }

    pub fn allocate_from(&mut self, handle: usize, bytes: usize) -> Result<usize> {
        let mut pool = *self.pools.get(&handle).ok_or(Error::INVALID_VALUE)?;
        if bytes == 0 {
            return Ok(0);
        }
        let span = rounded_pages(bytes).ok_or(Error::OUT_OF_MEMORY)?;
        let bytes = (bytes as u64).next_multiple_of(ALIGNMENT);
        pool.used += bytes;
        let reserved = pool.used.next_multiple_of(CHUNK).max(pool.reserved);
        self.accounts.charge(pool.device, reserved - pool.reserved)?;
        let address = self.place(pool.device, span, Kind::Pool(handle, bytes));
        if address.is_err() {
            self.accounts.release(pool.device, reserved - pool.reserved);
            return address;
        }
        pool.reserved = reserved;
        pool.used_high = pool.used_high.max(pool.used);
        pool.reserved_high = pool.reserved_high.max(pool.reserved);
        self.pools.insert(handle, pool);
        address
    }

    pub(super) fn give_back(&mut self, handle: usize, bytes: u64) {
        if let Some(pool) = self.pools.get_mut(&handle) {
            pool.used = pool.used.saturating_sub(bytes);
        }
    }

    /// A synchronization of the device lets its pools go back to their thresholds.
    pub fn trim_pools(&mut self, device: usize) {
        let handles: Vec<(usize, u64)> = self
            .pools
            .iter()
            .filter(|(_, pool)| pool.device == device)
            .map(|(&handle, pool)| (handle, pool.release_threshold))
            .collect();
        for (handle, keep) in handles {
            self.trim(handle, keep).unwrap_or_default();
        }
    }

    /// `cudaMemPoolTrimTo`.
    pub fn trim(&mut self, handle: usize, keep: u64) -> Result {
        let pool = self.pools.get_mut(&handle).ok_or(Error::INVALID_VALUE)?;
        let reserved = pool.used.next_multiple_of(CHUNK).max(keep).min(pool.reserved);
        let freed = pool.reserved - reserved;
        pool.reserved = reserved;
        let device = pool.device;
        self.accounts.release(device, freed);
        Ok(())
    }

    pub fn pool_attribute(&self, handle: usize, attribute: i32) -> Result<Attribute> {
        let pool = self.pools.get(&handle).ok_or(Error::INVALID_VALUE)?;
        Ok(match attribute {
            1..=3 => Attribute::Switch(i32::from(!pool.reuse_off[attribute as usize - 1])),
            4 => Attribute::Amount(pool.release_threshold),
            5 => Attribute::Amount(pool.reserved),
            6 => Attribute::Amount(pool.reserved_high),
            7 => Attribute::Amount(pool.used),
            8 => Attribute::Amount(pool.used_high),
            _ => return Err(Error::INVALID_VALUE),
        })
    }

    /// High-water marks can only be set back to now, which the value zero says.
    pub fn set_pool_attribute(&mut self, handle: usize, attribute: i32, value: Attribute) -> Result {
        let pool = self.pools.get_mut(&handle).ok_or(Error::INVALID_VALUE)?;
        match (attribute, value) {
            (1..=3, Attribute::Switch(on)) => pool.reuse_off[attribute as usize - 1] = on == 0,
            (4, Attribute::Amount(bytes)) => pool.release_threshold = bytes,
            (6, Attribute::Amount(0)) => pool.reserved_high = pool.reserved,
            (8, Attribute::Amount(0)) => pool.used_high = pool.used,
            _ => return Err(Error::INVALID_VALUE),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_pool_keeps_up_to_its_threshold() {
        let text = "total=104857600".to_owned();
        let config = Config::read(|name| (name == "TONNAGE_PHANTOM_DEVICES").then(|| text.clone())).unwrap();
        let mut memory = Memory::without_ledger(&config);
        let pool = memory.default_pool(0);
        let block = memory.allocate_from(pool, 40 << 20).unwrap();
        assert_eq!(memory.pool_attribute(pool, 5), Ok(Attribute::Amount(64 << 20)));
        assert_eq!(memory.allocate_from(pool, 64 << 20), Err(Error::OUT_OF_MEMORY));
        memory.free(block).unwrap();
        assert_eq!(memory.pool_attribute(pool, 7), Ok(Attribute::Amount(0)));
        memory.set_pool_attribute(pool, 4, Attribute::Amount(u64::MAX)).unwrap();
        memory.trim_pools(0);
        assert_eq!(memory.accounts.used(0), 64 << 20);
        memory.trim(pool, 0).unwrap();
        assert_eq!(memory.accounts.used(0), 0);
        assert_eq!(memory.pool_attribute(pool, 8), Ok(Attribute::Amount(40 << 20)));
        assert_eq!(memory.pool_attribute(pool, 9), Err(Error::INVALID_VALUE));
        assert_eq!(memory.pool_attribute(7, 1), Err(Error::INVALID_VALUE));
        memory.set_pool_attribute(pool, 8, Attribute::Amount(0)).unwrap();
        assert_eq!(memory.pool_attribute(pool, 8), Ok(Attribute::Amount(0)));
    }
}
