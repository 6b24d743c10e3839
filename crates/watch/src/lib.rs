//! Reads GPUs through NVML and says what is going on: `nvml` (the only part that knows the library) makes a [`Sample`],
//! `host` adds what the kernel knows of the processes, [`Board`] keeps history and trends, [`observe_sample`] says
//! what somebody should be told, and `format`,
//! `screen` and `web` show it. `replay` makes samples of a recording instead.

// No library for others: a field whose name says all is not said again. What is documented says a unit, a range or a source.
#![allow(missing_docs)]

pub mod absent;
pub mod alert;
mod amount;
pub mod board;
mod conditions;
pub mod format;
pub mod history;
pub mod host;
pub mod notify;
pub mod nvml;
mod os;
pub mod prediction;
pub mod record;
pub mod sample;
pub mod screen;
pub mod suites;
pub mod trend;
pub mod watcher;
pub mod web;

pub use absent::{Absent, Reading};
pub use alert::{Alert, AlertKind, Alerts};
pub use board::{Board, Series, SeriesKey};
pub use conditions::observe_sample;
pub use prediction::{PredictedPhase, Prediction};
pub use sample::{DeviceSample, Memory, ProcessKind, ProcessSample, Sample, Sampler};
pub use suites::{LookAtSuites, suite_headline, suite_json, suite_run_lines};
