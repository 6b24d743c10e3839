//! [`Board`]: the newest sample with everything that was learnt from those before it. All views are drawn from it.

use std::collections::BTreeMap;

use tonnage_core::record::SuiteSummary;

use crate::alert::Alerts;
use crate::amount::mib_text;
use crate::history::{History, Point};
use crate::prediction::Prediction;
use crate::sample::{DeviceSample, ProcessSample, Sample};
use crate::trend::Trend;

/// Trends change slowly and cost something.
const TREND_SECONDS: f64 = 10.0;
/// Of many points, so many new ones change a trend: those of its seconds at one a second.
const TREND_POINTS: u32 = 10;
/// Fewer points than this are few.
const FEW_POINTS: u32 = 600;
/// A series without a point for this long is forgotten, unless it is a device's.
const FORGET_SECONDS: f64 = 900.0;

/// A process of another job that holds less does not matter.
const LEAST_NEIGHBOUR: u64 = 512 << 20;

/// What a series is of: a device by its UUID, and a process on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesKey {
    pub device: String,
    /// The process; the device itself where there is none.
    pub pid: Option<u32>,
}

/// Memory of a device or a process over time.
#[derive(Clone, Debug, Default)]
pub struct Series {
    pub history: History,
    /// How it grows, if it does.
    pub trend: Option<Trend>,
    trend_time: f64,
    /// All points, and those since the trend was looked at.
    points: u32,
    new_points: u32,
}

/// The state behind all views.
#[derive(Clone, Debug)]
pub struct Board {
    /// The newest sample.
    pub sample: Sample,
    /// What was predicted of the job.
    pub prediction: Option<Prediction>,
    /// Suites of runs that live.
    pub suites: Vec<SuiteSummary>,
    /// What somebody should be told.
    pub alerts: Alerts,
    /// The time of the first sample.
    pub began: f64,
    /// How many samples there were.
    pub samples: u64,
    series: BTreeMap<SeriesKey, Series>,
    /// The job that holds the most memory.
    job: Option<String>,
}

impl Board {
    /// A board without a sample yet.
    pub fn new(prediction: Option<Prediction>) -> Self {
        let unknown = crate::Absent::UNKNOWN;
        let sample = Sample { time: 0.0, driver: Err(unknown), cuda: Err(unknown), devices: Vec::new(), problem: None };
        Self {
            sample,
            prediction,
            suites: Vec::new(),
            alerts: Alerts::default(),
            began: 0.0,
            samples: 0,
            series: BTreeMap::new(),
            job: None,
        }
    }

    /// Remembers a sample of an earlier run: for the history only.
    pub fn remember_earlier(&mut self, sample: Sample) {
        self.remember(sample);
        self.samples = 0;
    }

    /// Remembers a sample, the newest; what it means is told by [`crate::observe_sample`].
    pub fn remember(&mut self, sample: Sample) {
        if self.samples == 0 {
            self.began = sample.time;
        }
        self.samples += 1;
        let time = sample.time;
        for device in sample.all_devices() {
            let id = device.id();
            if let Ok(memory) = device.memory {
                self.push(SeriesKey { device: id.clone(), pid: None }, Point { time, bytes: memory.used });
            }
            for process in device.running() {
                if let Ok(bytes) = process.memory {
                    self.push(SeriesKey { device: id.clone(), pid: Some(process.pid) }, Point { time, bytes });
                }
            }
        }
        let is_fresh = |history: &History| history.last().is_some_and(|last| time - last.time < FORGET_SECONDS);
        self.series.retain(|key, series| key.pid.is_none() || is_fresh(&series.history));
        self.sample = sample;
        self.job = self.main_job();
    }

    fn push(&mut self, key: SeriesKey, point: Point) {
        let series = self.series.entry(key).or_default();
        series.history.push(point);
        series.points = series.points.saturating_add(1);
        series.new_points += 1;
        let matters = series.points < FEW_POINTS || series.new_points >= TREND_POINTS;
        if point.time - series.trend_time >= TREND_SECONDS && matters {
            series.trend = Trend::of(&series.history);
            series.trend_time = point.time;
            series.new_points = 0;
        }
    }

    /// The series of a device, or of a process on it.
    pub fn series(&self, device: &DeviceSample, pid: Option<u32>) -> Option<&Series> {
        self.series.get(&SeriesKey { device: device.id(), pid })
    }

    /// How a device's memory grows.
    pub fn trend_of_device(&self, device: &DeviceSample) -> Option<Trend> {
        self.series(device, None)?.trend
    }

    /// How a process's memory grows.
    pub fn trend_of_process(&self, device: &DeviceSample, pid: u32) -> Option<Trend> {
        self.series(device, Some(pid))?.trend
    }

    /// Seconds until a device is full, where it grows.
    pub fn seconds_to_full(&self, device: &DeviceSample) -> Option<f64> {
        Some(self.trend_of_device(device)?.seconds_to_fill(device.memory.ok()?.free))
    }

    /// When a process was first seen.
    pub fn arrived(&self, device: &DeviceSample, pid: u32) -> f64 {
        self.series(device, Some(pid)).and_then(|series| series.history.began()).unwrap_or(self.began)
    }

    /// What people call a device: `GPU 3`, `GPU 0 MIG 1`.
    pub fn label(&self, device: &DeviceSample) -> String {
        let parent = self.sample.devices.iter().find(|parent| parent.instances.iter().any(|each| each == device));
        match parent {
            Some(parent) => format!("GPU {} MIG {}", parent.index, device.index),
            None => format!("GPU {}", device.index),
        }
    }

    /// Whether a process belongs to the job that was predicted: the one that holds the most memory.
    pub fn is_of_job(&self, process: &ProcessSample) -> bool {
        self.prediction.is_some() && process.host.job == self.job
    }

    fn main_job(&self) -> Option<String> {
        let mut bytes: BTreeMap<&Option<String>, u64> = BTreeMap::new();
        for process in self.sample.all_devices().flat_map(DeviceSample::running) {
            let held = bytes.entry(&process.host.job).or_default();
            *held = held.saturating_add(process.memory.unwrap_or(0));
        }
        bytes.into_iter().max_by_key(|(_, bytes)| *bytes).and_then(|(job, _)| job.clone())
    }

    /// What to do where a device has no memory left: about the process of another job that holds the most of it, then
    /// about the job itself.
    pub fn advice_on_memory(&self, device: &DeviceSample) -> String {
        let Some(other) = self.neighbour(device) else { return self.key_to_change() };
        let who = other.host.user.as_deref().map(|user| format!(" of {user}")).unwrap_or_default();
        let job = other.host.job.as_deref().map(|job| format!("{job}, ")).unwrap_or_default();
        let bytes = mib_text(other.memory.unwrap_or(0));
        let key = self.key_to_change();
        format!("wait for process {}{who} ({job}{bytes}), or take another GPU; else {key}", other.pid)
    }

    /// The largest process beside the device's own job: the one that was predicted, or else the one that came first.
    fn neighbour<'a>(&self, device: &'a DeviceSample) -> Option<&'a ProcessSample> {
        let owner = |process: &'a ProcessSample| (&process.host.job, &process.host.user);
        let held = |process: &ProcessSample| process.memory.unwrap_or(0);
        let came_first = |one: &&ProcessSample, other: &&ProcessSample| {
            let of_job = |process: &ProcessSample| !self.is_of_job(process);
            let arrived = |process: &ProcessSample| self.arrived(device, process.pid);
            let place = arrived(one).total_cmp(&arrived(other));
            of_job(one).cmp(&of_job(other)).then(place).then(held(other).cmp(&held(one)))
        };
        let own = device.running().iter().filter(|process| process.host.job.is_some()).min_by(came_first)?;
        let others =
            device.running().iter().filter(|process| process.host.job.is_some() && owner(process) != owner(own));
        others.filter(|process| held(process) > LEAST_NEIGHBOUR).max_by_key(|process| held(process))
    }

    /// The key that lowers memory, as far as anybody can say.
    pub fn key_to_change(&self) -> String {
        let advice = self.prediction.as_ref().and_then(|prediction| prediction.advice.get());
        advice.cloned().unwrap_or_else(|| "lower `micro_batch_size`, or see `tonnage plan JOB`".to_owned())
    }
}
