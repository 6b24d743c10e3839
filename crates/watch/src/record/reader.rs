//! [`Recording`]: samples of a recording, or of any script of the scripted library.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tonnage_core::limit::{GPU_RECORDING_LINES, GPU_SAMPLES, LINE_BYTES};

use super::check::check_line;
use super::keys::{MEMORY_CALL, MIG_CALL, NUMBERS, PROCESSES_CALL};
use super::value::{aged_number, process_row};
use crate::absent::{Absent, Reading};
use crate::sample::{DeviceSample, Memory, ProcessSample, Sample, Sampler};

/// Devices beyond this are a slip of the pen.
const MOST_DEVICES: u64 = 256;
/// A script that was written by hand is looked at once a second, and goes on for so long after its last line.
const AFTER_SECONDS: f64 = 10.0;
/// More moments than a month has seconds are no timeline.
const MOST_MOMENTS: f64 = 3e6;

/// Processes and instances of all devices together; beyond it is no machine.
const MOST_ROWS: usize = 65_536;

/// A recording that is being read. Its lines are read as they are played: as values they take many times the memory.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    text: String,
    lines: Vec<Line>,
    next: usize,
    moments: Vec<f64>,
    at: usize,
    started: f64,
    system: Map<String, Value>,
    devices: BTreeMap<u32, Device>,
    /// Most GPUs, processes and instances of a sample.
    rows: usize,
}

/// Where a line stands in the text, and its time.
#[derive(Clone, Copy, Debug)]
struct Line {
    time: f64,
    begin: u32,
    bytes: u32,
}

#[derive(Clone, Debug)]
struct Event {
    time: f64,
    device: Option<u32>,
    values: Map<String, Value>,
}

/// What was said of a device so far: values with their time, errors by call, Xids since the last sample.
#[derive(Clone, Debug, Default)]
struct Device {
    values: BTreeMap<String, (f64, Value)>,
    errors: BTreeMap<String, Absent>,
    xids: Vec<u64>,
}

/// A line that is none of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingError {
    /// Which, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: String,
}

impl std::fmt::Display for RecordingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for RecordingError {}

impl Recording {
    /// Reads `text`. A last line that was cut off, as by a full disk, is left out.
    ///
    /// # Errors
    /// When a line cannot be read.
    pub fn parse(text: impl Into<String>) -> Result<Self, RecordingError> {
        let text = text.into();
        let mut head = Head::default();
        let mut begin = 0;
        for (number, line) in text.split_inclusive('\n').enumerate() {
            let at = begin;
            begin += line.len();
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            head.add(at, line).map_err(|problem| RecordingError { line: number + 1, problem })?;
        }
        let Head { mut lines, started, recorded, rows } = head;
        let rows = rows.values().map(|rows| rows + 1).sum();
        lines.sort_by(|one, other| one.time.total_cmp(&other.time));
        let moments = sample_moments(&lines, recorded);
        Ok(Self { text, lines, moments, rows, started: started.map_or(0.0, |(_, started)| started), ..Self::default() })
    }

    /// What a line says; it was checked.
    fn event(&self, line: Line) -> Option<Event> {
        let begin = line.begin as usize;
        let value = serde_json::from_str(self.text.get(begin..begin + line.bytes as usize)?).ok()?;
        Event::of(value).ok()
    }

    /// The same with samples that are at least so many seconds apart; what was told between them counts in the next.
    #[must_use]
    pub fn every(mut self, seconds: f64) -> Self {
        // A recording's times are sums of fractions.
        const ROUNDING: f64 = 1e-6;
        let mut last = f64::NEG_INFINITY;
        self.moments.retain(|moment| {
            let is_due = moment - last >= seconds - ROUNDING;
            last = if is_due { *moment } else { last };
            is_due
        });
        self
    }

    /// The same with one of so many samples, and that number, where all together would tell of more than
    /// [`GPU_SAMPLES`] GPUs and processes; 1 where they do not. The last is always among them.
    #[must_use]
    pub fn bounded(mut self) -> (Self, usize) {
        let one_of = self.rows.saturating_mul(self.moments.len()).div_ceil(GPU_SAMPLES).max(1);
        let mut after = self.moments.len();
        self.moments.retain(|_| {
            after -= 1;
            after.is_multiple_of(one_of)
        });
        (self, one_of)
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.moments.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.moments.is_empty()
    }

    /// The time of the next sample, if there is one.
    pub fn next_time(&self) -> Option<f64> {
        Some(self.started + self.moments.get(self.at)?)
    }

    fn apply(&mut self, event: &Event) {
        let Some(index) = event.device else {
            self.system.extend(event.values.clone());
            return;
        };
        self.devices.entry(index).or_default().apply(event.time, &event.values);
    }

    fn system_error(&self) -> Device {
        let mut device = Device::default();
        device.apply(0.0, &self.system);
        device
    }
}

/// What is known of a recording before it is played.
#[derive(Default)]
struct Head {
    lines: Vec<Line>,
    /// When it was started, by the earliest line that says so, with that line's time.
    started: Option<(f64, f64)>,
    recorded: bool,
    /// Most rows that a line of a device has.
    rows: BTreeMap<u32, usize>,
}

impl Head {
    fn add(&mut self, at: usize, line: &str) -> Result<(), String> {
        let value: Value = match line {
            long if long.len() > LINE_BYTES => {
                return Err(format!("a line of {} bytes is none of a recording", long.len()));
            }
            line => match serde_json::from_str(line) {
                Ok(value) => value,
                Err(_) if !line.ends_with('\n') => return Ok(()),
                Err(error) => return Err(error.to_string()),
            },
        };
        let event = Event::of(value)?;
        let number = |key: &str| event.values.get(key).and_then(Value::as_f64);
        self.recorded |= number("tonnage_recording").is_some();
        if let Some(started) = number("started").filter(|_| self.started.is_none_or(|(time, _)| event.time < time)) {
            self.started = Some((event.time, started));
        }
        if let Some(device) = event.device {
            let most = self.rows.entry(device).or_default();
            *most = row_count(&event.values).max(*most);
        }
        if self.rows.values().sum::<usize>() > MOST_ROWS {
            return Err(format!("more than {MOST_ROWS} processes and instances are on no machine"));
        }
        if self.lines.len() == GPU_RECORDING_LINES {
            return Err(format!("more than {GPU_RECORDING_LINES} lines; replay a part of it"));
        }
        let place = |size: usize| u32::try_from(size).map_err(|_| "the recording is longer than 4 GiB".to_owned());
        self.lines.push(Line { time: event.time, begin: place(at)?, bytes: place(line.len())? });
        Ok(())
    }
}

/// Rows of all lists of a device, and of its instances.
fn row_count(values: &Map<String, Value>) -> usize {
    let of_list =
        |list: &Vec<Value>| list.len() + list.iter().filter_map(Value::as_object).map(row_count).sum::<usize>();
    values.values().filter_map(Value::as_array).map(of_list).sum()
}

/// When samples are made: at the times of a recording; of a script every second as well.
fn sample_moments(lines: &[Line], recorded: bool) -> Vec<f64> {
    let mut moments: Vec<f64> = lines.iter().map(|line| line.time).collect();
    moments.dedup();
    let end = moments.last().copied().unwrap_or(0.0) + AFTER_SECONDS;
    if !recorded && (0.0..MOST_MOMENTS).contains(&end) {
        moments.extend((0..end as u64).map(|second| second as f64));
        moments.sort_by(f64::total_cmp);
        moments.dedup();
    }
    if lines.is_empty() { Vec::new() } else { moments }
}

impl Sampler for Recording {
    fn sample(&mut self) -> Option<Sample> {
        let now = *self.moments.get(self.at)?;
        self.at += 1;
        while let Some(line) = self.lines.get(self.next).copied().filter(|line| line.time <= now) {
            if let Some(event) = self.event(line) {
                self.apply(&event);
            }
            self.next += 1;
        }
        let system = self.system_error();
        let devices =
            self.devices.iter_mut().map(|(index, device)| device.sample(*index, now, &system.errors)).collect();
        let text = self.system.get("driver").and_then(Value::as_str).map(str::to_owned);
        let cuda = self.system.get("cuda").and_then(Value::as_i64).and_then(|cuda| i32::try_from(cuda).ok());
        Some(Sample {
            time: self.started + now,
            driver: text.ok_or(Absent::NOT_SUPPORTED),
            cuda: cuda.ok_or(Absent::NOT_SUPPORTED),
            devices,
            problem: None,
        })
    }
}

impl Event {
    fn of(value: Value) -> Result<Self, String> {
        let Value::Object(values) = value else { return Err("expected an object".to_owned()) };
        let time = values.get("t").and_then(Value::as_f64).unwrap_or(0.0);
        let device = match values.get("device") {
            None => None,
            Some(index) => {
                let index = index.as_u64().filter(|index| *index < MOST_DEVICES);
                Some(index.ok_or_else(|| format!("`device` is a number below {MOST_DEVICES}"))? as u32)
            }
        };
        check_line(&values)?;
        Ok(Self { time, device, values })
    }
}

impl Device {
    fn apply(&mut self, time: f64, values: &Map<String, Value>) {
        for (key, value) in values {
            match key.as_str() {
                "t" | "device" => {}
                "xid" => self.xids.extend(value.as_u64()),
                "error" if value.is_null() => self.errors.clear(),
                "error" => self.set_errors(value),
                _ => {
                    self.values.insert(key.clone(), (time, value.clone()));
                }
            }
        }
    }

    fn set_errors(&mut self, errors: &Value) {
        for (call, word) in errors.as_object().into_iter().flatten() {
            match word.as_str() {
                Some(word) => self.errors.insert(call.clone(), Absent::named(word)),
                None => self.errors.remove(call),
            };
        }
    }

    fn sample(&mut self, index: u32, now: f64, system: &BTreeMap<String, Absent>) -> DeviceSample {
        let xids = std::mem::take(&mut self.xids);
        let error = |call: &str| {
            let of = |errors: &BTreeMap<String, Absent>| errors.get(call).or_else(|| errors.get("*")).copied();
            of(system).or_else(|| of(&self.errors)).map_or(Ok(()), Err)
        };
        let text = |key: &str| {
            let text = self.values.get(key).and_then(|(_, value)| value.as_str()).map(str::to_owned);
            text.ok_or(Absent::NOT_SUPPORTED)
        };
        let mut sample = DeviceSample {
            name: text("name"),
            uuid: text("uuid"),
            pci: text("pci"),
            memory: error(MEMORY_CALL).and_then(|()| self.memory(now)),
            xids,
            ..DeviceSample::absent(index, Absent::NOT_SUPPORTED)
        };
        for number in NUMBERS {
            (number.set)(&mut sample, error(number.call).and_then(|()| self.number(number.key, now)));
        }
        sample.processes = error(PROCESSES_CALL).and_then(|()| self.processes(now));
        sample.instance = self
            .number("gpu_instance", now)
            .ok()
            .zip(self.number("compute_instance", now).ok())
            .map(|(gpu, compute)| (gpu as u32, compute as u32));
        sample.mig = error(MIG_CALL).and_then(|()| self.number("mig_mode", now)).map(|mode| mode != 0.0);
        if let (Some((since, Value::Array(instances))), Ok(())) = (self.values.get("mig"), error(MIG_CALL)) {
            sample.mig = Ok(true);
            let instance = |(number, values): (usize, &Value)| {
                let mut device = Self::default();
                device.apply(*since, values.as_object()?);
                let mut instance = device.sample(number as u32, now, system);
                instance.parent = Some(index);
                // A script names its profile, a recording the whole name.
                let profile = device.values.get("profile").and_then(|(_, profile)| profile.as_str());
                if let (Err(_), Ok(name), Some(profile)) = (&instance.name, &sample.name, profile) {
                    instance.name = Ok(format!("{name} MIG {profile}"));
                }
                Some(instance)
            };
            sample.instances = instances.iter().enumerate().filter_map(instance).collect();
        }
        sample
    }

    fn memory(&self, now: f64) -> Reading<Memory> {
        let total = self.number("total", now)? as u64;
        let is_told = ["used", "processes", "processes_late"].iter().any(|key| self.values.contains_key(*key));
        let used = self.number("used", now).or_else(|why| {
            if !is_told {
                return Err(why);
            }
            let processes = self.processes(now).unwrap_or_default();
            let of_processes = processes.iter().filter_map(|process| process.memory.ok()).sum::<u64>() as f64;
            if self.values.contains_key("used") { Err(why) } else { Ok(of_processes) }
        })? as u64;
        let reserved = self.number("reserved", now).ok().map(|reserved| reserved as u64);
        let used = used.min(total);
        Ok(Memory { total, reserved, used, free: total.saturating_sub(used + reserved.unwrap_or(0)) })
    }

    fn number(&self, key: &str, now: f64) -> Reading<f64> {
        let (since, value) = self.values.get(key).ok_or(Absent::NOT_SUPPORTED)?;
        aged_number(value, now - since).ok_or(Absent::NOT_SUPPORTED)
    }

    fn processes(&self, now: f64) -> Reading<Vec<ProcessSample>> {
        let mut found = Vec::new();
        for key in ["processes", "processes_late"] {
            match self.values.get(key) {
                None => {}
                Some((since, Value::Array(rows))) => {
                    found.extend(rows.iter().filter_map(|row| process_row(row, now - since)));
                }
                Some(_) => return Err(Absent::NOT_SUPPORTED),
            }
        }
        Ok(found)
    }
}
