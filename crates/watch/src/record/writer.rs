//! [`Recorder`]: writes samples as lines, each device with what changed since its last line.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::check::VERSION;
use super::keys::{MEMORY_CALL, NUMBERS, PROCESSES_CALL};
use crate::absent::{Absent, Reading};
use crate::host::Command;
use crate::sample::{DeviceSample, ProcessKind, ProcessSample, Sample};

/// Writes a recording.
pub struct Recorder<W> {
    to: W,
    began: Option<f64>,
    written: BTreeMap<u32, Map<String, Value>>,
    bytes: u64,
}

impl<W: Write> Recorder<W> {
    /// One that writes to `to`.
    pub fn new(to: W) -> Self {
        Self { to, began: None, written: BTreeMap::new(), bytes: 0 }
    }

    /// What it wrote to.
    pub fn into_inner(self) -> W {
        self.to
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes a sample.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, sample: &Sample) -> io::Result<()> {
        let began = match self.began {
            Some(began) => began,
            None => self.begin(sample)?,
        };
        let time = ((sample.time - began) * 1000.0).round() / 1000.0;
        for device in &sample.devices {
            self.device(time, device)?;
        }
        // A line a sample says that time went on, also when nothing changed.
        self.line(&json!({"t": time}))?;
        self.to.flush()
    }

    fn begin(&mut self, sample: &Sample) -> io::Result<f64> {
        let header = json!({
            "tonnage_recording": VERSION,
            "started": sample.time,
            "driver": sample.driver.clone().ok(),
            "cuda": sample.cuda.ok(),
        });
        self.line(&header)?;
        self.began = Some(sample.time);
        Ok(sample.time)
    }

    fn device(&mut self, time: f64, device: &DeviceSample) -> io::Result<()> {
        let now = device_values(device);
        let before = self.written.get(&device.index);
        let changed = now.iter().filter(|(key, value)| before.and_then(|before| before.get(*key)) != Some(*value));
        let mut changed: Map<String, Value> = changed.map(|(key, value)| (key.clone(), value.clone())).collect();
        if let Some(errors) = changed.get_mut("error") {
            *errors = ended_rows(before.and_then(|before| before.get("error")), errors);
        }
        if let Some(xid) = device.xids.first() {
            changed.insert("xid".to_owned(), json!(xid));
        }
        if !changed.is_empty() {
            let mut line = Map::from_iter([("t".to_owned(), json!(time)), ("device".to_owned(), json!(device.index))]);
            line.extend(changed);
            self.line(&Value::Object(line))?;
        }
        self.written.insert(device.index, now);
        for xid in device.xids.iter().skip(1) {
            self.line(&json!({"t": time, "device": device.index, "xid": xid}))?;
        }
        Ok(())
    }

    fn line(&mut self, line: &Value) -> io::Result<()> {
        let text = format!("{line}\n");
        self.bytes += text.len() as u64;
        self.to.write_all(text.as_bytes())
    }
}

/// The errors of now, and `null` for those of before that ended.
fn ended_rows(before: Option<&Value>, now: &Value) -> Value {
    let mut errors = now.as_object().cloned().unwrap_or_default();
    for call in before.and_then(Value::as_object).into_iter().flat_map(Map::keys) {
        errors.entry(call.clone()).or_insert(Value::Null);
    }
    Value::Object(errors)
}

/// All that a line can say of a device.
pub(super) fn device_values(device: &DeviceSample) -> Map<String, Value> {
    let mut values = Map::new();
    let mut errors = Map::new();
    for (key, text) in [("name", &device.name), ("uuid", &device.uuid), ("pci", &device.pci)] {
        values.insert(key.to_owned(), json!(text.as_ref().ok()));
    }
    let reserved = device.memory.ok().and_then(|memory| memory.reserved);
    values.insert("total".to_owned(), json!(device.memory.ok().map(|memory| memory.total)));
    values.insert("reserved".to_owned(), json!(reserved));
    values.insert("used".to_owned(), json!(device.memory.ok().map(|memory| memory.used)));
    note_error(&mut errors, MEMORY_CALL, &device.memory);
    for number in NUMBERS {
        let reading = (number.get)(device);
        values.insert(number.key.to_owned(), reading.map_or(Value::Null, whole_number));
        note_error(&mut errors, number.call, &reading);
    }
    if let Ok(mode) = device.mig {
        values.insert("mig_mode".to_owned(), json!(u8::from(mode)));
    }
    if let Some((gpu, compute)) = device.instance {
        values.insert("gpu_instance".to_owned(), json!(gpu));
        values.insert("compute_instance".to_owned(), json!(compute));
    }
    let processes =
        device.processes.as_ref().map(|list| list.iter().map(process_values).collect::<Vec<_>>()).map_err(|why| *why);
    values.insert("processes".to_owned(), json!(processes.as_ref().ok()));
    note_error(&mut errors, PROCESSES_CALL, &processes);
    if device.mig == Ok(true) {
        let instances = device.instances.iter().map(|instance| Value::Object(device_values(instance)));
        values.insert("mig".to_owned(), instances.collect());
    }
    let errors = if device.is_lost() { lost_fields(device) } else { errors };
    values.insert("error".to_owned(), Value::Object(errors));
    values
}

fn lost_fields(device: &DeviceSample) -> Map<String, Value> {
    let why = device.memory.err().unwrap_or(Absent::LOST);
    Map::from_iter([("*".to_owned(), json!(why.word()))])
}

/// What is not supported is told by `null`; other reasons by the error of the call.
fn note_error<T>(errors: &mut Map<String, Value>, call: &str, reading: &Reading<T>) {
    if let Some(why) = reading.as_ref().err().filter(|why| **why != Absent::NOT_SUPPORTED) {
        errors.insert(call.to_owned(), json!(why.word()));
    }
}

/// A number, without a fraction where it has none.
fn whole_number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9e15 { json!(number as i64) } else { json!(number) }
}

fn process_values(process: &ProcessSample) -> Value {
    let kind = match process.kind {
        ProcessKind::Compute => "compute",
        ProcessKind::Graphics => "graphics",
        ProcessKind::Mps => "mps",
    };
    let host = &process.host;
    let mut values = json!({
        "pid": process.pid,
        "used": process.memory.ok(),
        "kind": kind,
        "sm": process.sm.ok(),
        "name": process.name.as_ref().ok(),
    });
    let known = |command: &Command| if let Command::Known(text) = command { Some(text.clone()) } else { None };
    let more = [
        ("command", json!(known(&host.command))),
        ("gone", json!((host.command == Command::Gone).then_some(true))),
        ("of_the_host", json!((host.command == Command::OfTheHost).then_some(true))),
        ("user", json!(host.user)),
        ("container", json!(host.container)),
        ("job", json!(host.job)),
        ("rank", json!(host.rank)),
        ("node", json!(host.node)),
        ("parent", json!(host.parent)),
        ("started", json!(host.started)),
    ];
    if let Some(object) = values.as_object_mut() {
        object
            .extend(more.into_iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.to_owned(), value)));
    }
    values
}
