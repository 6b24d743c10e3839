//! Device memory: address space, who holds which part of it, what it is charged against, and what copies may touch.

mod accounts;
mod answer;
mod block;
mod copy;
mod host;
mod ledger;
mod physical;
mod pool;
mod recent;
mod sharing;
mod space;
mod usage;

use std::collections::BTreeMap;

pub use block::Kind;
pub use copy::{Side, copy_bytes, fill_bytes};

pub use pool::Attribute;
pub use recent::must_forget;
pub use sharing::Handle;
pub use space::GRANULARITY;

use accounts::Accounts;
use block::Block;
use host::HostBlocks;
use physical::Physical;
use pool::Pool;
use recent::Recent;
use space::{Space, rounded_pages};

use crate::config::Config;

/// All of a process's device memory.
pub struct Memory {
    space: Space,
    pub accounts: Accounts,
    /// What is readable and writable now, by address: allocations and mappings, without overlap.
    blocks: BTreeMap<usize, Block>,
    /// Address ranges that were reserved and not yet given back.
    reservations: BTreeMap<usize, usize>,
    physical: BTreeMap<u64, Physical>,
    pools: BTreeMap<usize, Pool>,
    pub host: HostBlocks,
    recent: Recent,
    next_handle: u64,
    log: bool,
}

impl Memory {
    /// A machine's memory; its ledger is opened.
    pub fn new(config: &Config) -> Result<Self, String> {
        let mut memory = Self::without_ledger(config);
        if let Some(path) = &config.ledger {
            let ledger = ledger::Ledger::open(path)
                .map_err(|error| format!("TONNAGE_PHANTOM_LEDGER: cannot use {}: {error}", path.display()))?;
            memory.accounts.share(ledger);
        }
        if let Some(folder) = &config.usage {
            memory.accounts.tell(usage::Usage::new(folder.clone()));
        }
        Ok(memory)
    }

    pub fn without_ledger(config: &Config) -> Self {
        Self {
            space: Space::default(),
            accounts: Accounts::new(&config.devices),
            blocks: BTreeMap::new(),
            reservations: BTreeMap::new(),
            physical: BTreeMap::new(),
            pools: BTreeMap::new(),
            host: HostBlocks::default(),
            recent: Recent::default(),
            next_handle: 1,
            log: config.log,
        }
    }

    fn note(&self, what: &str, bytes: usize, address: usize, device: usize) {
        if self.log {
            let used = self.accounts.used(device);
            eprintln!("tonnage phantom: {what} {bytes} at {address:#x} on {device}, used {used}");
        }
    }
}
