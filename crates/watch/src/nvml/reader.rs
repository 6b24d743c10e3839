//! [`NvmlSampler`]: a [`Sample`] of the driver's answers. A call that fails leaves its reading absent and all others alone.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use tonnage_secrets::hide_in_text;

use super::library::Library;
use super::structs::Device;
use crate::absent::{Absent, Reading};
use crate::host::Kernel;
use crate::sample::{DeviceSample, ProcessKind, ProcessSample, Sample, Sampler};

/// The three lists of processes, by the stem of their call.
const LISTS: [(ProcessKind, &str); 3] = [
    (ProcessKind::Compute, "nvmlDeviceGetComputeRunningProcesses"),
    (ProcessKind::Graphics, "nvmlDeviceGetGraphicsRunningProcesses"),
    (ProcessKind::Mps, "nvmlDeviceGetMPSComputeRunningProcesses"),
];

/// What processes do is an average of the driver's samples of so many seconds.
const BUSY_SECONDS: f64 = 3.0;

/// Reads the driver.
pub struct NvmlSampler {
    library: Library,
    kernel: Kernel,
    /// What does not change, by index: name, UUID and address, as far as known.
    identities: Vec<Identity>,
    handles: Vec<Reading<Device>>,
    /// The handles whose Xids are asked for, by index: of a lost device there is no handle any more.
    listened: Vec<Reading<Device>>,
    /// Names by process, as NVML tells them.
    names: BTreeMap<u32, String>,
}

#[derive(Clone)]
struct Identity {
    name: Reading<String>,
    uuid: Reading<String>,
    pci: Reading<String>,
}

impl NvmlSampler {
    /// A reader of `library` that asks `kernel` about processes.
    pub fn new(mut library: Library, kernel: Kernel) -> Self {
        let count = library.count().unwrap_or(0);
        let listened: Vec<_> = (0..count).map(|index| library.device(index)).collect();
        let devices: Vec<Device> = listened.iter().filter_map(|device| device.as_ref().ok().copied()).collect();
        // Without events there are no Xids to show; the device says so nowhere else.
        let _unsupported = library.register_xids(&devices);
        Self { library, kernel, listened, identities: Vec::new(), handles: Vec::new(), names: BTreeMap::new() }
    }

    fn refresh_handles(&mut self) -> Option<Absent> {
        let counted = self.library.count();
        let known = self.handles.len() as u32;
        let count = counted.unwrap_or(known);
        self.handles = (0..count).map(|index| self.library.device(index)).collect();
        self.identities.resize(self.handles.len(), Identity::unknown());
        for (identity, handle) in self.identities.iter_mut().zip(&self.handles) {
            match handle {
                Ok(device) => identity.complete_identity(&self.library, *device),
                Err(why) => identity.excuse(*why),
            }
        }
        counted.err()
    }

    fn device(&mut self, index: usize) -> DeviceSample {
        let mut sample = match self.handles[index] {
            Ok(device) => self.whole_device(index as u32, device),
            Err(why) => DeviceSample::absent(index as u32, why),
        };
        let Identity { name, uuid, pci } = self.identities[index].clone();
        (sample.name, sample.uuid, sample.pci) = (name, uuid, pci);
        sample
    }

    fn whole_device(&mut self, index: u32, device: Device) -> DeviceSample {
        let mut sample = self.read_device(index, device);
        if sample.mig == Ok(true) {
            let instances = self.library.instances(device).unwrap_or_default();
            sample.instances = instances
                .into_iter()
                .enumerate()
                .map(|(number, each)| self.read_instance(index, number as u32, each))
                .collect();
        }
        sample
    }

    fn read_instance(&mut self, parent: u32, number: u32, instance: Device) -> DeviceSample {
        let ids = self.library.instance_ids(instance).ok();
        let (name, uuid) = (self.library.name(instance), self.library.uuid(instance));
        DeviceSample { parent: Some(parent), instance: ids, name, uuid, ..self.read_device(number, instance) }
    }

    fn read_device(&mut self, index: u32, device: Device) -> DeviceSample {
        let library = &self.library;
        let utilization = library.utilization(device);
        let mut sample = DeviceSample {
            memory: library.memory(device),
            utilization: utilization.map(|rates| rates.0),
            memory_utilization: utilization.map(|rates| rates.1),
            temperature: library.temperature(device),
            fan: library.fan(device),
            power: library.power(device),
            power_limit: library.power_limit(device),
            energy: library.energy(device),
            sm_clock: library.sm_clock(device),
            memory_clock: library.memory_clock(device),
            throttle: library.throttle(device),
            ecc_uncorrected: library.ecc_uncorrected(device),
            remap_pending: library.remap_pending(device),
            mig: library.mig(device),
            ..DeviceSample::absent(index, Absent::NOT_SUPPORTED)
        };
        sample.processes = self.processes(device);
        sample
    }

    /// All lists as one; absent when those who compute cannot be listed, for then it would be a part.
    fn processes(&mut self, device: Device) -> Reading<Vec<ProcessSample>> {
        let lists = LISTS.map(|(kind, stem)| (kind, self.library.processes(stem, device)));
        lists[0].1.as_ref().map_err(|why| *why)?;
        let since = (unix_seconds() - BUSY_SECONDS).max(0.0) * 1e6;
        let busy = self.library.process_utilization(device, since as u64);
        let mut found: Vec<ProcessSample> = Vec::new();
        for (kind, list) in lists {
            for row in list.into_iter().flatten() {
                // A process that computes and draws is on two lists with the same memory.
                if found.iter().any(|process| process.pid == row.pid) {
                    continue;
                }
                let sm = busy.as_ref().map_err(|why| *why).and_then(|busy| of_process(busy, row.pid));
                let name = self.name_of_pid(row.pid);
                let host = self.kernel.look_up(row.pid);
                found.push(ProcessSample { pid: row.pid, kind, memory: row.memory, sm, name, host });
            }
        }
        Ok(found)
    }

    fn name_of_pid(&mut self, pid: u32) -> Reading<String> {
        if let Some(name) = self.names.get(&pid) {
            return Ok(name.clone());
        }
        // Drivers give whole command lines of programs that set their own title.
        let name = hide_in_text(&self.library.process_name(pid)?);
        self.names.insert(pid, name.clone());
        Ok(name)
    }

    fn forget_ended(&mut self, sample: &Sample) {
        let running: Vec<u32> = sample.all_devices().flat_map(|device| device.running()).map(|each| each.pid).collect();
        self.names.retain(|pid, _| running.contains(pid));
        self.kernel.forget_all_but(&running);
    }
}

impl Sampler for NvmlSampler {
    fn sample(&mut self) -> Option<Sample> {
        let problem = self.refresh_handles();
        let mut devices: Vec<_> = (0..self.handles.len()).map(|index| self.device(index)).collect();
        for (device, xid) in self.library.xids() {
            let index = self.listened.iter().position(|handle| *handle == Ok(device));
            if let Some(found) = index.and_then(|index| devices.get_mut(index)) {
                found.xids.push(xid);
            }
        }
        let (driver, cuda) = (self.library.driver(), self.library.cuda());
        let sample = Sample { time: unix_seconds(), driver, cuda, devices, problem };
        self.forget_ended(&sample);
        Some(sample)
    }
}

impl Identity {
    fn unknown() -> Self {
        let why = Absent::UNKNOWN;
        Self { name: Err(why), uuid: Err(why), pci: Err(why) }
    }

    fn complete_identity(&mut self, library: &Library, device: Device) {
        let ask = |known: &mut Reading<String>, call: fn(&Library, Device) -> Reading<String>| {
            if known.is_err() {
                *known = call(library, device);
            }
        };
        ask(&mut self.name, Library::name);
        ask(&mut self.uuid, Library::uuid);
        ask(&mut self.pci, Library::pci);
    }

    /// Says of what is not known yet why it is not; what is known stays.
    fn excuse(&mut self, why: Absent) {
        for reading in [&mut self.name, &mut self.uuid, &mut self.pci] {
            if reading.is_err() {
                *reading = Err(why);
            }
        }
    }
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// The last sample of a process; one without a sample did nothing that was measured.
fn of_process(busy: &[(u32, u32)], pid: u32) -> Reading<u32> {
    let last = busy.iter().rev().find(|(other, _)| *other == pid);
    last.map(|(_, percent)| *percent).ok_or(Absent::NOT_SUPPORTED)
}
