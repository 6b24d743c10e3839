//! Reads GPUs through NVML and says what is going on: `nvml` (the only part that knows the library) makes a [`Sample`],
//! `host` adds what the kernel knows of the processes, [`Board`] keeps history, trends and alerts, and `format`,
//! `screen` and `web` show it. [`replay`] makes samples of a recording instead.

pub mod absent;
pub mod host;
pub mod nvml;
pub mod sample;

pub use absent::{Absent, Reading};
pub use sample::{DeviceSample, Memory, ProcessKind, ProcessSample, Sample, Sampler};
