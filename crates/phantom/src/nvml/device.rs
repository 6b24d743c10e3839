//! [`Device`]: what the script says of one GPU, or of one MIG instance, at a moment.

use std::collections::BTreeMap;

use super::abi::{Code, NO_INSTANCE, NOT_SUPPORTED, SUCCESS, VALUE_NOT_AVAILABLE};
use super::json::Json;

/// A GPU or a MIG instance: values by their key in the script, each with the time from which it holds.
#[derive(Clone, Debug, Default)]
pub struct Device {
    values: BTreeMap<String, (f64, Json)>,
    errors: BTreeMap<String, Code>,
    /// The MIG instances; `None` where the device has no MIG.
    pub instances: Option<Vec<Device>>,
    /// Xids and when they happened.
    pub xids: Vec<(f64, u64)>,
}

/// Which list of NVML a process is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessKind {
    Compute,
    Graphics,
    Mps,
}

/// A process on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    pub pid: u32,
    /// Bytes, or [`VALUE_NOT_AVAILABLE`].
    pub used: u64,
    pub kind: ProcessKind,
    /// Per cent of the multiprocessors and of memory bandwidth, where known.
    pub sm: Option<u32>,
    pub memory: Option<u32>,
    pub gpu_instance: u32,
    pub compute_instance: u32,
    pub name: Option<String>,
}

impl Device {
    /// Takes over what an event says of the device.
    pub fn apply(&mut self, time: f64, event: &Json) {
        for (key, value) in event.pairs() {
            match key.as_str() {
                "t" | "device" => {}
                "error" => self.set_errors(value),
                "xid" => self.xids.extend(value.number().map(|xid| (time, xid as u64))),
                "mig" => self.set_instances(time, value),
                _ => {
                    self.values.insert(key.clone(), (time, value.clone()));
                }
            }
        }
    }

    /// Errors by call; `null` ends one, and a `null` for all ends all.
    pub fn set_errors(&mut self, errors: &Json) {
        if *errors == Json::Null {
            self.errors.clear();
        }
        for (call, name) in errors.pairs() {
            match name.text().and_then(super::abi::error_code) {
                Some(code) => self.errors.insert(call.clone(), code),
                None => self.errors.remove(call),
            };
        }
    }

    fn set_instances(&mut self, time: f64, instances: &Json) {
        self.instances = match instances {
            Json::List(list) => Some(list.iter().map(|event| Self::of(time, event)).collect()),
            _ => None,
        };
    }

    fn of(time: f64, event: &Json) -> Self {
        let mut device = Self::default();
        device.apply(time, event);
        device
    }

    /// What injected errors say of `call`.
    pub fn error(&self, call: &str) -> Code {
        self.errors.get(call).or_else(|| self.errors.get("*")).copied().unwrap_or(SUCCESS)
    }

    /// The number under `key`, at `now`.
    ///
    /// # Errors
    /// `NVML_ERROR_NOT_SUPPORTED` when the script gives none.
    pub fn number(&self, key: &str, now: f64) -> Result<f64, Code> {
        let (since, value) = self.values.get(key).ok_or(NOT_SUPPORTED)?;
        number(value, now - since).ok_or(NOT_SUPPORTED)
    }

    /// Whether the script says something of `key`, and be it `null`.
    pub fn is_given(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// The text under `key`.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key).and_then(|(_, value)| value.text())
    }

    /// The processes on the list of `kind`; `late` adds those that appear between two calls.
    ///
    /// # Errors
    /// `NVML_ERROR_NOT_SUPPORTED` when the script says `null`.
    pub fn processes(&self, kind: ProcessKind, now: f64, late: bool) -> Result<Vec<Process>, Code> {
        let mut found = self.process_list("processes", now)?;
        if late {
            found.extend(self.process_list("processes_late", now)?);
        }
        found.retain(|process| process.kind == kind);
        Ok(found)
    }

    /// All processes of the device and its instances.
    pub fn all_processes(&self, now: f64) -> Vec<Process> {
        let own =
            ["processes", "processes_late"].iter().flat_map(|key| self.process_list(key, now).unwrap_or_default());
        let instances = self.instances.iter().flatten().flat_map(|instance| instance.all_processes(now));
        own.chain(instances).collect()
    }

    fn process_list(&self, key: &str, now: f64) -> Result<Vec<Process>, Code> {
        match self.values.get(key) {
            None => Ok(Vec::new()),
            Some((_, Json::Null)) => Err(NOT_SUPPORTED),
            Some((since, list)) => {
                Ok(list.list().iter().filter_map(|row| self.process(row, now, now - since)).collect())
            }
        }
    }

    fn process(&self, row: &Json, now: f64, age: f64) -> Option<Process> {
        let field = |key: &str| row.get(key).and_then(|value| number(value, age));
        let instance = |key: &str| self.number(key, now).map_or(NO_INSTANCE, |id| id as u32);
        let kind = match row.get("kind").and_then(Json::text) {
            Some("graphics") => ProcessKind::Graphics,
            Some("mps") => ProcessKind::Mps,
            _ => ProcessKind::Compute,
        };
        Some(Process {
            pid: field("pid")? as u32,
            used: field("used").map_or(VALUE_NOT_AVAILABLE, |used| used as u64),
            kind,
            sm: field("sm").map(|percent| percent as u32),
            memory: field("mem").map(|percent| percent as u32),
            gpu_instance: instance("gpu_instance"),
            compute_instance: instance("compute_instance"),
            name: row.get("name").and_then(Json::text).map(str::to_owned),
        })
    }
}

/// A number that holds, or `{"at": A, "per_second": R, "most": M}`, which grows while it is `age` seconds old.
fn number(value: &Json, age: f64) -> Option<f64> {
    let ramp = |at: &Json| {
        let grown = at.number()? + value.get("per_second").and_then(Json::number).unwrap_or(0.0) * age.max(0.0);
        let most = value.get("most").and_then(Json::number).unwrap_or(f64::INFINITY);
        Some(grown.min(most).max(0.0))
    };
    value.number().or_else(|| value.get("at").and_then(ramp))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(text: &str) -> Device {
        Device::of(10.0, &Json::parse(text).unwrap())
    }

    #[test]
    fn what_is_not_said_is_not_supported() {
        let device = device(r#"{"temperature": null, "power": 20.5}"#);
        assert_eq!(device.number("temperature", 10.0), Err(NOT_SUPPORTED));
        assert_eq!(device.number("fan", 10.0), Err(NOT_SUPPORTED));
        assert_eq!(device.number("power", 99.0), Ok(20.5));
    }

    #[test]
    fn a_ramp_grows_from_its_event_to_its_most() {
        let device = device(r#"{"used": {"at": 100, "per_second": 5, "most": 130}}"#);
        let at = |now| device.number("used", now).unwrap();
        assert_eq!((at(10.0), at(14.0), at(99.0)), (100.0, 120.0, 130.0));
    }

    #[test]
    fn late_processes_are_only_on_the_second_list() {
        let device = device(r#"{"processes": [{"pid": 1, "used": 7}], "processes_late": [{"pid": 2}]}"#);
        let count = |late| device.processes(ProcessKind::Compute, 10.0, late).unwrap().len();
        assert_eq!((count(false), count(true)), (1, 2));
        assert_eq!(device.processes(ProcessKind::Compute, 10.0, true).unwrap()[1].used, VALUE_NOT_AVAILABLE);
    }

    #[test]
    fn errors_come_and_go() {
        let mut device = device(r#"{"error": {"*": "gpu_is_lost", "nvmlDeviceGetName": "no_permission"}}"#);
        assert_eq!((device.error("nvmlDeviceGetName"), device.error("nvmlDeviceGetUUID")), (4, 15));
        device.apply(11.0, &Json::parse(r#"{"error": null}"#).unwrap());
        assert_eq!(device.error("nvmlDeviceGetName"), SUCCESS);
    }
}
