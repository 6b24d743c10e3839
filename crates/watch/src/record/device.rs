//! [`Device`]: what the lines of a recording have said of a device so far, and the sample that it makes.

use std::collections::BTreeMap;

use super::keys::{MEMORY_CALL, MIG_CALL, NUMBERS, PROCESSES_CALL};
use super::told::{Object, Told};
use super::value::{Amount, process_row};
use crate::absent::{Absent, Reading};
use crate::sample::{DeviceSample, Memory, ProcessSample};

/// Numbers that a sample is made of beside those of [`NUMBERS`], after which they stand.
const OTHERS: [&str; 6] = ["total", "used", "reserved", "mig_mode", "gpu_instance", "compute_instance"];
const TOTAL: usize = NUMBERS.len();
const USED: usize = TOTAL + 1;
const RESERVED: usize = TOTAL + 2;
const MIG_MODE: usize = TOTAL + 3;
const GPU_INSTANCE: usize = TOTAL + 4;
const COMPUTE_INSTANCE: usize = TOTAL + 5;

/// Texts and lists of processes. What else a line may say is for the scripted library.
const REST: [&str; 6] = ["name", "uuid", "pci", "profile", "processes", "processes_late"];
const NAME: usize = 0;
const UUID: usize = 1;
const PCI: usize = 2;
const PROFILE: usize = 3;
const PROCESSES: usize = 4;
const PROCESSES_LATE: usize = 5;

/// What was said of a device so far: values with their time, errors, Xids since the last sample.
#[derive(Clone, Debug, Default)]
pub(super) struct Device {
    numbers: [Option<(f64, Amount)>; NUMBERS.len() + OTHERS.len()],
    rest: [Option<(f64, Told<'static>)>; REST.len()],
    instances: Option<Vec<Device>>,
    errors: Errors,
    xids: Vec<u64>,
}

/// Errors by call.
#[derive(Clone, Debug, Default)]
pub(super) struct Errors(BTreeMap<String, Absent>);

impl Errors {
    pub fn apply(&mut self, errors: &Told<'_>) {
        if errors.is_null() {
            self.0.clear();
        }
        for (call, word) in errors.as_object().into_iter().flat_map(Object::iter) {
            match word.as_str() {
                Some(word) => self.0.insert(call.to_owned(), Absent::named(word)),
                None => self.0.remove(call),
            };
        }
    }

    fn of_call(&self, call: &str) -> Option<Absent> {
        self.0.get(call).or_else(|| self.0.get("*")).copied()
    }
}

fn number_place(key: &str) -> Option<usize> {
    NUMBERS.iter().map(|number| number.key).chain(OTHERS).position(|known| known == key)
}

impl Device {
    pub fn apply(&mut self, time: f64, values: Object<'_>) {
        for (key, value) in values {
            match (key.as_ref(), number_place(&key)) {
                ("xid", _) => self.xids.extend(value.as_u64()),
                ("error", _) => self.errors.apply(&value),
                ("mig", _) => self.instances = device_rows(time, value),
                (_, Some(place)) => self.numbers[place] = Some((time, Amount::of(&value))),
                (key, None) => {
                    if let Some(place) = REST.iter().position(|known| *known == key) {
                        self.rest[place] = Some((time, value.into_static()));
                    }
                }
            }
        }
    }

    pub fn sample(&mut self, index: u32, now: f64, system: &Errors) -> DeviceSample {
        let xids = std::mem::take(&mut self.xids);
        let error =
            |call: &str| system.of_call(call).or_else(|| self.errors.of_call(call)).map_or(Ok(()), Err::<(), Absent>);
        let text = |place: usize| self.text(place).map(str::to_owned).ok_or(Absent::NOT_SUPPORTED);
        let mut sample = DeviceSample {
            name: text(NAME),
            uuid: text(UUID),
            pci: text(PCI),
            memory: error(MEMORY_CALL).and_then(|()| self.memory(now)),
            xids,
            ..DeviceSample::absent(index, Absent::NOT_SUPPORTED)
        };
        for (number, told) in NUMBERS.iter().zip(&self.numbers) {
            (number.set)(&mut sample, error(number.call).and_then(|()| reading(told, now)));
        }
        sample.processes = error(PROCESSES_CALL).and_then(|()| self.processes(now));
        let instance = self.number(GPU_INSTANCE, now).ok().zip(self.number(COMPUTE_INSTANCE, now).ok());
        sample.instance = instance.map(|(gpu, compute)| (gpu as u32, compute as u32));
        sample.mig = error(MIG_CALL).and_then(|()| self.number(MIG_MODE, now)).map(|mode| mode != 0.0);
        if let (Ok(()), Some(instances)) = (error(MIG_CALL), &mut self.instances) {
            sample.mig = Ok(true);
            let of = |(number, device): (usize, &mut Self)| device.sample_instance(number as u32, now, system, &sample);
            sample.instances = instances.iter_mut().enumerate().map(of).collect();
        }
        sample
    }

    fn sample_instance(&mut self, number: u32, now: f64, system: &Errors, of: &DeviceSample) -> DeviceSample {
        let mut instance = self.sample(number, now, system);
        instance.parent = Some(of.index);
        // A script names its profile, a recording the whole name.
        if let (Err(_), Ok(name), Some(profile)) = (&instance.name, &of.name, self.text(PROFILE)) {
            instance.name = Ok(format!("{name} MIG {profile}"));
        }
        instance
    }

    fn memory(&self, now: f64) -> Reading<Memory> {
        let total = self.number(TOTAL, now)? as u64;
        let are_processes_told = self.rest[PROCESSES].is_some() || self.rest[PROCESSES_LATE].is_some();
        let used = self.number(USED, now).or_else(|why| {
            if self.numbers[USED].is_some() || !are_processes_told {
                return Err(why);
            }
            let processes = self.processes(now).unwrap_or_default();
            Ok(processes.iter().filter_map(|process| process.memory.ok()).map(|bytes| bytes as f64).sum())
        })? as u64;
        let reserved = self.number(RESERVED, now).ok().map(|reserved| reserved as u64);
        let used = used.min(total);
        Ok(Memory { total, reserved, used, free: (total - used).saturating_sub(reserved.unwrap_or(0)) })
    }

    fn number(&self, place: usize, now: f64) -> Reading<f64> {
        reading(&self.numbers[place], now)
    }

    fn text(&self, place: usize) -> Option<&str> {
        self.rest[place].as_ref().and_then(|(_, value)| value.as_str())
    }

    fn processes(&self, now: f64) -> Reading<Vec<ProcessSample>> {
        let mut found = Vec::new();
        for place in [PROCESSES, PROCESSES_LATE] {
            match &self.rest[place] {
                None => {}
                Some((since, Told::List(rows))) => {
                    found.extend(rows.iter().filter_map(|row| process_row(row, now - since)));
                }
                Some(_) => return Err(Absent::NOT_SUPPORTED),
            }
        }
        Ok(found)
    }
}

fn reading(told: &Option<(f64, Amount)>, now: f64) -> Reading<f64> {
    told.as_ref().and_then(|(since, amount)| amount.after(now - since)).ok_or(Absent::NOT_SUPPORTED)
}

/// Instances, of which each line tells anew; `None` where the device is not split.
fn device_rows(time: f64, value: Told<'_>) -> Option<Vec<Device>> {
    let Told::List(rows) = value else { return None };
    let device = |row| {
        let mut device = Device::default();
        if let Told::Object(values) = row {
            device.apply(time, values);
        }
        device
    };
    Some(rows.into_iter().map(device).collect())
}
