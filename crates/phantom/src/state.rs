//! The process's one phantom machine: its settings, its memory, its streams and graphs, each behind a lock.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::config::Config;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::runtime::Streams;

static CONFIG: OnceLock<Config> = OnceLock::new();
static MEMORY: OnceLock<Mutex<Memory>> = OnceLock::new();
static STREAMS: Mutex<Streams> = Mutex::new(Streams::new());

thread_local! {
    /// The device that `cudaSetDevice` chose in this thread.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Reads the settings; an error is a sentence for the user.
pub fn load() -> std::result::Result<&'static Config, String> {
    let config = Config::read(|name| std::env::var(name).ok())?;
    let memory = Memory::new(&config)?;
    MEMORY.get_or_init(|| Mutex::new(memory));
    Ok(CONFIG.get_or_init(|| config))
}

/// The settings as read at load; where the library was linked instead of loaded, the environment's of the first use.
pub fn config() -> &'static Config {
    CONFIG.get_or_init(|| {
        Config::read(|_| None).unwrap_or_else(|_| Config {
            machine: Vec::new(),
            devices: Vec::new(),
            ledger: None,
            usage: None,
            log: false,
        })
    })
}

pub fn lock_memory() -> MutexGuard<'static, Memory> {
    MEMORY.get_or_init(|| Mutex::new(Memory::without_ledger(config()))).lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn lock_streams() -> MutexGuard<'static, Streams> {
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device with this number.
pub fn device_at(ordinal: i32) -> Result<(usize, &'static Device)> {
    let index = usize::try_from(ordinal).map_err(|_| Error::INVALID_DEVICE)?;
    let device = config().devices.get(index).ok_or(Error::INVALID_DEVICE)?;
    Ok((index, device))
}

/// This thread's device; there is none on a machine without devices.
pub fn current_device() -> Result<usize> {
    let index = CURRENT.get();
    if index < config().devices.len() { Ok(index) } else { Err(Error::NO_DEVICE) }
}

pub fn set_current(index: usize) {
    CURRENT.set(index);
}
