//! What each device has left: the process's own allocations and contexts, and through a ledger other processes' too.

use super::ledger::Ledger;
use super::usage::Usage;
use crate::device::Device;
use crate::error::{Error, Result};

/// One account a device.
pub struct Accounts {
    devices: Vec<Account>,
    ledger: Option<Ledger>,
    usage: Option<Usage>,
}

struct Account {
    /// The device's number on the machine: its column in the ledger.
    ordinal: usize,
    total: u64,
    usable: u64,
    context: u64,
    /// Of this process, its context included.
    used: u64,
    has_context: bool,
}

impl Accounts {
    pub fn new(devices: &[Device]) -> Self {
        let account = |device: &Device| Account {
            ordinal: device.ordinal,
            total: device.total,
            usable: device.usable,
            context: device.context,
            used: 0,
            has_context: false,
        };
        Self { devices: devices.iter().map(account).collect(), ledger: None, usage: None }
    }

    /// From now on, other processes' use of the same devices counts.
    pub fn share(&mut self, ledger: Ledger) {
        self.ledger = Some(ledger);
    }

    /// From now on, the most that this process ever holds of a device is written down.
    pub fn tell(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// A process's first use of a device takes the context's memory.
    pub fn enter(&mut self, device: usize) -> Result {
        let account = self.devices.get(device).ok_or(Error::INVALID_DEVICE)?;
        if !account.has_context {
            self.add(device, account.context)?;
            self.devices[device].has_context = true;
        }
        Ok(())
    }

    pub fn has_context(&self, device: usize) -> bool {
        self.devices.get(device).is_some_and(|account| account.has_context)
    }

    /// The device's number on the machine.
    pub fn ordinal(&self, device: usize) -> Result<usize> {
        self.devices.get(device).map(|account| account.ordinal).ok_or(Error::INVALID_DEVICE)
    }

    /// The device that has this number on the machine, where this process sees it.
    pub fn device_of(&self, ordinal: u64) -> Option<usize> {
        self.devices.iter().position(|account| account.ordinal as u64 == ordinal)
    }

    /// Takes memory of a device, or fails as the driver fails where it is full.
    pub fn charge(&mut self, device: usize, bytes: u64) -> Result {
        self.enter(device)?;
        self.add(device, bytes)
    }

    fn add(&mut self, device: usize, bytes: u64) -> Result {
        let account = self.devices.get_mut(device).ok_or(Error::INVALID_DEVICE)?;
        let used = account.used.checked_add(bytes).ok_or(Error::OUT_OF_MEMORY)?;
        let fits = match &mut self.ledger {
            Some(ledger) => ledger.raise(account.ordinal, used, account.usable),
            None => used <= account.usable,
        };
        if let Some(usage) = &mut self.usage {
            if fits {
                let users = self.ledger.as_mut().map_or_else(Vec::new, |ledger| ledger.users(account.ordinal));
                let together = users.iter().map(|(_, bytes)| bytes).sum::<u64>().max(used);
                usage.note_given(account.ordinal, bytes, used, (users.len().max(1), together));
            } else {
                usage.note_refused(account.ordinal, bytes, account.used);
            }
        }
        if !fits {
            return Err(Error::OUT_OF_MEMORY);
        }
        account.used = used;
        Ok(())
    }

    pub fn release(&mut self, device: usize, bytes: u64) {
        if let Some(account) = self.devices.get_mut(device) {
            account.used = account.used.saturating_sub(bytes);
            if let Some(ledger) = &mut self.ledger {
                ledger.lower(account.ordinal, account.used);
            }
        }
    }

    /// This process's use of a device.
    pub fn used(&self, device: usize) -> u64 {
        self.devices.get(device).map_or(0, |account| account.used)
    }

    /// The processes that use the device with this number on the machine, each with its bytes.
    pub fn users(&mut self, ordinal: usize) -> Vec<(u32, u64)> {
        match &mut self.ledger {
            Some(ledger) => ledger.users(ordinal),
            None => {
                let own = self.devices.iter().find(|account| account.ordinal == ordinal && account.used > 0);
                own.map(|account| (std::process::id(), account.used)).into_iter().collect()
            }
        }
    }

    /// Free and total bytes, as `cudaMemGetInfo` gives them.
    pub fn free_and_total(&mut self, device: usize) -> Result<(u64, u64)> {
        self.enter(device)?;
        let account = &self.devices[device];
        let others = self.ledger.as_mut().map_or(0, |ledger| ledger.others(account.ordinal));
        Ok((account.usable.saturating_sub(account.used).saturating_sub(others), account.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn accounts() -> Accounts {
        let text = "total=100,usable=90,context=10;total=50".to_owned();
        Accounts::new(&Config::read(|name| (name == "TONNAGE_PHANTOM_DEVICES").then(|| text.clone())).unwrap().devices)
    }

    #[test]
    fn the_context_is_charged_once_and_devices_are_apart() {
        let mut accounts = accounts();
        accounts.charge(0, 60).unwrap();
        assert_eq!(accounts.free_and_total(0), Ok((20, 100)));
        assert_eq!(accounts.charge(0, 21), Err(Error::OUT_OF_MEMORY));
        accounts.charge(0, 20).unwrap();
        accounts.release(0, 80);
        assert_eq!(accounts.free_and_total(0), Ok((80, 100)));
        assert!(!accounts.has_context(1));
        assert_eq!(accounts.free_and_total(1), Ok((50, 50)));
        assert_eq!(accounts.charge(2, 1), Err(Error::INVALID_DEVICE));
        assert_eq!(accounts.charge(1, u64::MAX), Err(Error::OUT_OF_MEMORY));
    }

    #[test]
    fn two_processes_share_through_a_ledger() {
        let path = std::env::temp_dir().join(format!("tonnage-accounts-{}", std::process::id()));
        let mut ours = accounts();
        ours.share(Ledger::open(&path).unwrap());
        let mut other = Ledger::open(&path).unwrap();
        // A process that lives: the one that started this test.
        other.stand_for(std::os::unix::process::parent_id());
        assert!(other.raise(0, 50, 90));
        assert_eq!(ours.free_and_total(0), Ok((30, 100)));
        assert_eq!(ours.charge(0, 31), Err(Error::OUT_OF_MEMORY));
        ours.charge(0, 30).unwrap();
        assert!(!other.raise(0, 51, 90));
        other.lower(0, 0);
        assert_eq!(ours.free_and_total(0), Ok((50, 100)));
        std::fs::remove_file(path).unwrap();
    }
}
