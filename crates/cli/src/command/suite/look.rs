//! [`Looker`]: what GPUs say of themselves while a suite runs, under W&B's names. A driver that hangs must not hold up the suite: it is
//! asked in a thread of its own, and whoever looks gets what was said last.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tonnage_suite::runner::Readings;
use tonnage_watch::host::Kernel;
use tonnage_watch::nvml::{Library, NvmlSampler};
use tonnage_watch::sample::{DeviceSample, Sampler as _};

use super::super::watch::LIBRARY;

/// Readings that are older than this many intervals say nothing of now.
const STALE: u32 = 3;
/// The least interval: a driver is not asked more often.
const LEAST: Duration = Duration::from_millis(200);

/// Asks the GPUs.
pub struct Looker {
    every: Duration,
    newest: Arc<Mutex<Option<(Instant, Readings)>>>,
    begun: Once,
}

impl Looker {
    /// One that asks so often, once somebody looks.
    pub fn new(every: Duration) -> Self {
        Self { every: every.max(LEAST), newest: Arc::default(), begun: Once::new() }
    }

    /// What was said last; nothing where nothing tells of GPUs, or nothing has for long.
    pub fn look(&self) -> Readings {
        self.begun.call_once(|| {
            let (newest, every) = (Arc::clone(&self.newest), self.every);
            // Started by the first look: by then the runner has taken the signals that no other thread must get.
            thread::spawn(move || ask_driver(&newest, every));
        });
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |(at, _): &&(Instant, Readings)| at.elapsed() < self.every * STALE;
        newest.as_ref().filter(is_fresh).map(|(_, readings)| readings.clone()).unwrap_or_default()
    }
}

fn ask_driver(newest: &Mutex<Option<(Instant, Readings)>>, every: Duration) {
    let path = std::env::var_os(LIBRARY).map(PathBuf::from);
    let Ok(library) = Library::open(path.as_deref()) else { return };
    let mut sampler = NvmlSampler::new(library, Kernel::of_this_machine());
    while let Some(sample) = sampler.sample() {
        let readings = sample.devices.iter().map(device_reading).collect();
        *newest.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), readings));
        thread::sleep(every);
    }
}

/// A GPU's names and values; what is absent has none. The names are those of `wandb-symon` of wandb 0.31.
fn device_reading(device: &DeviceSample) -> (Vec<String>, BTreeMap<String, f64>) {
    let names = std::iter::once(device.index.to_string()).chain(device.uuid.clone().ok()).collect();
    let mut values = BTreeMap::new();
    let mut add = |name: &str, value: Option<f64>| {
        if let Some(value) = value {
            values.insert(format!("system.gpu.{}.{name}", device.index), value);
        }
    };
    let memory = device.memory.ok();
    let (power, limit) = (device.power.ok(), device.power_limit.ok());
    add("gpu", device.utilization.ok().map(f64::from));
    add("memory", device.memory_utilization.ok().map(f64::from));
    add("memoryAllocated", memory.map(|memory| 100.0 * memory.ratio()));
    add("memoryAllocatedBytes", memory.map(|memory| memory.used as f64));
    add("temp", device.temperature.ok().map(f64::from));
    add("powerWatts", power);
    add("enforcedPowerLimitWatts", limit);
    add("powerPercent", power.zip(limit).filter(|(_, limit)| *limit > 0.0).map(|(power, limit)| 100.0 * power / limit));
    add("smClock", device.sm_clock.ok().map(f64::from));
    add("memoryClock", device.memory_clock.ok().map(f64::from));
    add("fanSpeed", device.fan.ok().map(f64::from));
    add("uncorrectedMemoryErrors", device.ecc_uncorrected.ok().map(|count| count as f64));
    (names, values)
}
