//! [`Sample`]: everything that was read at one moment. Each reading may be absent alone.

use crate::absent::{Absent, Reading};
use crate::host::Host;

/// Where samples come from: the driver, or a recording.
pub trait Sampler: Send {
    /// The next sample; `None` when there are no more.
    fn sample(&mut self) -> Option<Sample>;
}

/// All devices at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Seconds since 1970.
    pub time: f64,
    /// The driver's version.
    pub driver: Reading<String>,
    /// The CUDA version that the driver offers: 13000 is 13.0.
    pub cuda: Reading<i32>,
    /// The GPUs by index.
    pub devices: Vec<DeviceSample>,
    /// Why the devices could not be counted, if so.
    pub problem: Option<Absent>,
}

/// A GPU, or a MIG instance of one.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSample {
    /// Its index; of an instance its number among the instances of its GPU.
    pub index: u32,
    /// The name under which series of it are joined.
    pub uuid: Reading<String>,
    /// The product's name.
    pub name: Reading<String>,
    /// The PCI address.
    pub pci: Reading<String>,
    pub memory: Reading<Memory>,
    /// Per cent of time in which a kernel ran.
    pub utilization: Reading<u32>,
    /// Per cent of time in which memory was read or written.
    pub memory_utilization: Reading<u32>,
    /// Degrees Celsius, of the GPU die.
    pub temperature: Reading<u32>,
    /// Per cent of the fan's speed.
    pub fan: Reading<u32>,
    /// Watts drawn now.
    pub power: Reading<f64>,
    /// Watts that it may take.
    pub power_limit: Reading<f64>,
    /// Joules since the driver was loaded.
    pub energy: Reading<f64>,
    /// MHz of the multiprocessors.
    pub sm_clock: Reading<u32>,
    /// MHz of the memory.
    pub memory_clock: Reading<u32>,
    /// Why clocks are held down: bits of `nvmlClocksEventReasons`.
    pub throttle: Reading<u64>,
    /// Uncorrected memory errors since the driver was loaded.
    pub ecc_uncorrected: Reading<u64>,
    /// Whether memory rows wait for a reset to be remapped.
    pub remap_pending: Reading<bool>,
    /// Whether it is split into instances.
    pub mig: Reading<bool>,
    /// The index of the GPU that an instance is of.
    pub parent: Option<u32>,
    /// GPU instance and compute instance, of an instance.
    pub instance: Option<(u32, u32)>,
    /// Who uses it.
    pub processes: Reading<Vec<ProcessSample>>,
    /// The instances of a GPU that is split.
    pub instances: Vec<DeviceSample>,
    /// Xids since the sample before.
    pub xids: Vec<u64>,
}

/// Memory of a device in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub total: u64,
    /// Kept by the driver; unknown with an old driver, where it is part of `used`.
    pub reserved: Option<u64>,
    pub used: u64,
    pub free: u64,
}

/// What a process does on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessKind {
    Compute,
    Graphics,
    /// A client of the multi-process service.
    Mps,
}

/// A process on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessSample {
    /// Its id in the host's namespace.
    pub pid: u32,
    /// What it does.
    pub kind: ProcessKind,
    /// Its own bytes on the device.
    pub memory: Reading<u64>,
    /// Per cent of the multiprocessors.
    pub sm: Reading<u32>,
    /// What NVML calls it.
    pub name: Reading<String>,
    /// What the kernel says of it, where the id can be looked up.
    pub host: Host,
}

impl DeviceSample {
    /// A device of which nothing is known but why.
    pub fn absent(index: u32, why: Absent) -> Self {
        Self {
            index,
            uuid: Err(why),
            name: Err(why),
            pci: Err(why),
            memory: Err(why),
            utilization: Err(why),
            memory_utilization: Err(why),
            temperature: Err(why),
            fan: Err(why),
            power: Err(why),
            power_limit: Err(why),
            energy: Err(why),
            sm_clock: Err(why),
            memory_clock: Err(why),
            throttle: Err(why),
            ecc_uncorrected: Err(why),
            remap_pending: Err(why),
            mig: Err(why),
            parent: None,
            instance: None,
            processes: Err(why),
            instances: Vec::new(),
            xids: Vec::new(),
        }
    }

    /// The name under which its series are kept: the UUID, or the index where there is none.
    pub fn id(&self) -> String {
        let by_index = || match self.parent {
            Some(parent) => format!("gpu-{parent}-mig-{}", self.index),
            None => format!("gpu-{}", self.index),
        };
        self.uuid.clone().unwrap_or_else(|_| by_index())
    }

    /// Its processes; none where the list is absent.
    pub fn running(&self) -> &[ProcessSample] {
        self.processes.as_deref().unwrap_or_default()
    }

    /// Whether it has fallen off the bus or must be reset.
    pub fn is_lost(&self) -> bool {
        self.memory.as_ref().is_err_and(|why| why.is_loss())
    }
}

impl Memory {
    /// The part that is not free.
    pub fn ratio(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.used as f64 / self.total as f64 }
    }
}

impl Sample {
    /// The GPUs, each followed by its instances.
    pub fn all_devices(&self) -> impl Iterator<Item = &DeviceSample> {
        self.devices.iter().flat_map(|device| std::iter::once(device).chain(&device.instances))
    }
}
