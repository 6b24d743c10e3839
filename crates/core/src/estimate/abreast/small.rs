//! [`SmallPools`]: the small pools of several devices, as few of them as there are different ones.
//!
//! Devices whose blocks lie alike share a pool, which is served with the sizes of the first of them. In a stretch that frees
//! all it allocates the sizes of the others matter only if one of them had to ask the driver; where that is not certain the
//! devices get pools of their own for the stretch, and come together again if these are alike after it.

use super::pool::Pool;
use super::stretch::Want;

struct Shared {
    pool: Pool,
    /// Not empty; the first one's sizes are those that count.
    devices: Vec<usize>,
    /// The pool that this one is a copy of, until the stretch ends.
    copy_of: Option<usize>,
}

pub(super) struct SmallPools(Vec<Shared>);

impl SmallPools {
    /// One for all of so many devices.
    pub fn new(devices: usize) -> Self {
        Self(vec![Shared { pool: Pool::new(), devices: (0..devices).collect(), copy_of: None }])
    }

    /// Takes a block for the size that each pool's first device asks for, if not 0; whether any pool grew.
    pub fn take(&mut self, slot: u32, stream: u8, size: impl Fn(usize) -> u64) -> Option<bool> {
        let mut grew = false;
        for shared in &mut self.0 {
            let size = size(shared.devices[0]);
            if size > 0 {
                let before = shared.pool.reserved();
                shared.pool.take(slot, stream, size)?;
                grew |= shared.pool.reserved() != before;
            }
        }
        Some(grew)
    }

    pub fn give(&mut self, slot: u32) {
        for shared in &mut self.0 {
            shared.pool.give(slot);
        }
    }

    pub fn empty_cache(&mut self) {
        self.0.iter_mut().for_each(|shared| shared.pool.empty_cache());
    }

    pub fn reserved(&self, device: usize) -> u64 {
        self.of(device).map_or(0, Pool::reserved)
    }

    pub fn reserved_by_stream(&self, device: usize) -> Vec<u64> {
        self.of(device).map_or_else(Vec::new, Pool::reserved_by_stream)
    }

    fn of(&self, device: usize) -> Option<&Pool> {
        self.0.iter().find(|shared| shared.devices.contains(&device)).map(|shared| &shared.pool)
    }

    /// A stretch begins that frees all it allocates, in which devices want this.
    pub fn begin_stretch(&mut self, stream: u8, wants: &[Want]) {
        // A cached block that holds all of a device's requests at once serves them in any order.
        self.split(wants, |shared| {
            let most = shared.devices.iter().map(|device| wants[*device].total).max();
            !shared.pool.has_cached_small(stream, most.unwrap_or_default())
        });
    }

    /// Devices that want different sizes part for good.
    pub fn part(&mut self, wants: &[Want]) {
        self.split(wants, |_| true);
        self.0.iter_mut().for_each(|shared| shared.copy_of = None);
    }

    /// Gives copies of a pool that `is_to_split` to those devices that want other sizes than its first.
    fn split(&mut self, wants: &[Want], is_to_split: impl Fn(&Shared) -> bool) {
        for at in 0..self.0.len() {
            let of_first = &wants[self.0[at].devices[0]].own;
            let (alike, others): (Vec<_>, Vec<_>) =
                self.0[at].devices.iter().partition(|device| wants[**device].own == *of_first);
            if others.is_empty() || !is_to_split(&self.0[at]) {
                continue;
            }
            self.0[at].devices = alike;
            for device in others {
                self.give_copy(at, device, wants);
            }
        }
    }

    fn give_copy(&mut self, of: usize, device: usize, wants: &[Want]) {
        let wants_alike =
            |shared: &&mut Shared| shared.copy_of == Some(of) && wants[shared.devices[0]].own == wants[device].own;
        match self.0.iter_mut().find(wants_alike) {
            Some(shared) => shared.devices.push(device),
            None => {
                let pool = self.0[of].pool.clone();
                self.0.push(Shared { pool, devices: vec![device], copy_of: Some(of) });
            }
        }
    }

    /// The stretch is over: copies in which blocks lie as in their originals are given up.
    pub fn rejoin(&mut self) {
        for at in (0..self.0.len()).rev() {
            let Some(original) = self.0[at].copy_of.take() else { continue };
            if self.0[at].pool.arrangement() == self.0[original].pool.arrangement() {
                let devices = self.0.remove(at).devices;
                self.0[original].devices.extend(devices);
            }
        }
    }
}
