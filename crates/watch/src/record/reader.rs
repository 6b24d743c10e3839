//! [`Recording`]: samples of a recording, or of any script of the scripted library.

use std::collections::BTreeMap;
use tonnage_core::small_sort::SmallSort;

use tonnage_core::limit::{GPU_RECORDING_LINES, GPU_SAMPLES, LINE_BYTES};

use super::check::check_line;
use super::device::{Device, Errors};
use super::told::{Object, Told};
use crate::absent::Absent;
use crate::sample::{Sample, Sampler};

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
    system: System,
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

/// What a line says: of a device, or of all.
struct Event<'a> {
    time: f64,
    device: Option<u32>,
    values: Object<'a>,
}

/// What was said of all devices.
#[derive(Clone, Debug, Default)]
struct System {
    driver: Option<String>,
    cuda: Option<i32>,
    errors: Errors,
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
        let Head { mut lines, started, recorded, rows, all_rows } = head;
        let rows = all_rows + rows.len();
        lines.small_sort_by(|one, other| one.time.total_cmp(&other.time));
        let moments = sample_moments(&lines, recorded);
        Ok(Self { text, lines, moments, rows, started: started.map_or(0.0, |(_, started)| started), ..Self::default() })
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
}

/// What is known of a recording before it is played.
#[derive(Default)]
struct Head {
    lines: Vec<Line>,
    /// When it was started, by the earliest line that says so, with that line's time.
    started: Option<(f64, f64)>,
    recorded: bool,
    /// Most rows that a line of a device has, and those of all devices.
    rows: BTreeMap<u32, usize>,
    all_rows: usize,
}

impl Head {
    fn add(&mut self, at: usize, line: &str) -> Result<(), String> {
        if line.len() > LINE_BYTES {
            return Err(format!("a line of {} bytes is none of a recording", line.len()));
        }
        let value = match serde_json::from_str(line) {
            Ok(value) => value,
            Err(_) if !line.ends_with('\n') => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        let event = Event::of(value)?;
        check_line(&event.values)?;
        let number = |key: &str| event.values.number_at(key);
        self.recorded |= number("tonnage_recording").is_some();
        if let Some(started) = number("started").filter(|_| self.started.is_none_or(|(time, _)| event.time < time)) {
            self.started = Some((event.time, started));
        }
        if let Some(device) = event.device {
            let most = self.rows.entry(device).or_default();
            let rows = row_count(&event.values);
            self.all_rows += rows.saturating_sub(*most);
            *most = rows.max(*most);
        }
        if self.all_rows > MOST_ROWS {
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
fn row_count(values: &Object<'_>) -> usize {
    let of = |value: &Told<'_>| match value {
        Told::List(list) => list.len() + list.iter().filter_map(Told::as_object).map(row_count).sum::<usize>(),
        _ => 0,
    };
    values.iter().map(|(_, value)| of(value)).sum()
}

/// When samples are made: at the times of a recording; of a script every second as well.
fn sample_moments(lines: &[Line], recorded: bool) -> Vec<f64> {
    let mut moments: Vec<f64> = lines.iter().map(|line| line.time).collect();
    moments.dedup();
    let end = moments.last().copied().unwrap_or(0.0) + AFTER_SECONDS;
    if !recorded && (0.0..MOST_MOMENTS).contains(&end) {
        moments.extend((0..end as u64).map(|second| second as f64));
        moments.small_sort_by(f64::total_cmp);
        moments.dedup();
    }
    if lines.is_empty() { Vec::new() } else { moments }
}

impl Sampler for Recording {
    fn sample(&mut self) -> Option<Sample> {
        let now = *self.moments.get(self.at)?;
        self.at += 1;
        while let Some(line) = self.lines.get(self.next).filter(|line| line.time <= now) {
            self.next += 1;
            // It was checked.
            let Some(event) = line.event(&self.text) else { continue };
            match event.device {
                Some(index) => self.devices.entry(index).or_default().apply(event.time, event.values),
                None => self.system.apply(&event.values),
            }
        }
        let System { driver, cuda, errors } = &self.system;
        let devices = self.devices.iter_mut().map(|(index, device)| device.sample(*index, now, errors)).collect();
        Some(Sample {
            time: self.started + now,
            driver: driver.clone().ok_or(Absent::NOT_SUPPORTED),
            cuda: cuda.ok_or(Absent::NOT_SUPPORTED),
            devices,
            problem: None,
        })
    }
}

impl Line {
    fn event<'a>(&self, text: &'a str) -> Option<Event<'a>> {
        let begin = self.begin as usize;
        Event::of(serde_json::from_str(text.get(begin..begin + self.bytes as usize)?).ok()?).ok()
    }
}

impl<'a> Event<'a> {
    fn of(value: Told<'a>) -> Result<Self, String> {
        let Told::Object(values) = value else { return Err("expected an object".to_owned()) };
        let time = values.number_at("t").unwrap_or(0.0);
        let device = match values.get("device") {
            None => None,
            Some(index) => {
                let index = index.as_u64().filter(|index| *index < MOST_DEVICES);
                Some(index.ok_or_else(|| format!("`device` is a number below {MOST_DEVICES}"))? as u32)
            }
        };
        Ok(Self { time, device, values })
    }
}

impl System {
    fn apply(&mut self, values: &Object<'_>) {
        for (key, value) in values.iter() {
            match key {
                "driver" => self.driver = value.as_str().map(str::to_owned),
                "cuda" => self.cuda = value.as_u64().and_then(|cuda| i32::try_from(cuda).ok()),
                // Those that a later line names are all there are.
                "error" => {
                    self.errors = Errors::default();
                    self.errors.apply(value);
                }
                _ => {}
            }
        }
    }
}
