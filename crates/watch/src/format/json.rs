//! A sample as one JSON object, for `--json`, the web page and alerts: what is absent is `null`, its reason beside it.

use serde_json::{Map, Value, json};

use crate::absent::{Absent, Reading};
use crate::board::Board;
use crate::history::Point;
use crate::host::Command;
use crate::sample::{DeviceSample, ProcessKind, ProcessSample};
use crate::suites::suite_json;

/// The newest sample of a board, with trends, prediction and alerts.
pub fn sample_json(board: &Board) -> Value {
    let sample = &board.sample;
    json!({
        "version": 1,
        "time": sample.time,
        "driver": sample.driver.as_ref().ok(),
        "cuda": sample.cuda.ok().map(|cuda| format!("{}.{}", cuda / 1000, cuda % 1000 / 10)),
        "problem": sample.problem.map(Absent::reason),
        "prediction": prediction_json(board),
        "devices": sample.devices.iter().map(|each| device_json(board, each)).collect::<Vec<_>>(),
        "suites": board.suites.iter().map(suite_json).collect::<Vec<_>>(),
        "alerts": board.alerts.active().iter().map(alert_json).collect::<Vec<_>>(),
    })
}

/// The same as a line.
pub fn sample_line(board: &Board) -> String {
    super::escaped_json(&sample_json(board).to_string()) + "\n"
}

pub(crate) fn alert_json(alert: &crate::Alert) -> Value {
    json!({
        "kind": alert.kind.word(),
        "device": alert.device,
        "pid": alert.pid,
        "text": alert.text,
        "advice": alert.advice,
        "since": alert.since,
    })
}

/// Points as pairs of time and bytes.
pub fn series_json(points: &[Point]) -> Value {
    points.iter().map(|point| json!([(point.time * 10.0).round() / 10.0, point.bytes])).collect()
}

fn prediction_json(board: &Board) -> Value {
    let Some(prediction) = &board.prediction else { return Value::Null };
    let phases = prediction.phases.iter();
    json!({
        "job": prediction.job,
        "peak_bytes": prediction.peak_bytes,
        "range_bytes": [prediction.range.0, prediction.range.1],
        "advice": prediction.advice.get(),
        "phases": phases.map(|phase| json!({"name": phase.name, "low_bytes": phase.low, "high_bytes": phase.high}))
            .collect::<Vec<_>>(),
    })
}

fn device_json(board: &Board, device: &DeviceSample) -> Value {
    let series = board.series(device, None);
    let trend = board.trend_of_device(device);
    json!({
        "index": device.index,
        "label": board.label(device),
        "uuid": device.uuid.as_ref().ok(),
        "name": device.name.as_ref().ok(),
        "pci": device.pci.as_ref().ok(),
        "memory_total_bytes": device.memory.ok().map(|memory| memory.total),
        "memory_used_bytes": device.memory.ok().map(|memory| memory.used),
        "memory_free_bytes": device.memory.ok().map(|memory| memory.free),
        "memory_reserved_bytes": device.memory.ok().and_then(|memory| memory.reserved),
        "observed_peak_bytes": series.map(|series| series.history.peak()),
        "memory_trend_bytes_per_second": trend.map(|trend| trend.bytes_per_second),
        "seconds_to_full": board.seconds_to_full(device),
        "utilization_percent": device.utilization.ok(),
        "memory_utilization_percent": device.memory_utilization.ok(),
        "temperature_celsius": device.temperature.ok(),
        "fan_percent": device.fan.ok(),
        "power_watts": device.power.ok(),
        "power_limit_watts": device.power_limit.ok(),
        "energy_joules": device.energy.ok(),
        "sm_clock_mhz": device.sm_clock.ok(),
        "memory_clock_mhz": device.memory_clock.ok(),
        "throttle_reasons": device.throttle.ok(),
        "ecc_uncorrected": device.ecc_uncorrected.ok(),
        "remap_pending": device.remap_pending.ok(),
        "mig": device.mig.ok(),
        "gpu_instance": device.instance.map(|ids| ids.0),
        "compute_instance": device.instance.map(|ids| ids.1),
        "xids": device.xids,
        "absent": absent_fields(device),
        "processes": device.processes.as_ref().ok()
            .map(|list| list.iter().map(|each| process_json(board, device, each)).collect::<Vec<_>>()),
        "instances": device.instances.iter().map(|each| device_json(board, each)).collect::<Vec<_>>(),
    })
}

/// The readings that are not there, each with why; those that the device does not offer are left out.
fn absent_fields(device: &DeviceSample) -> Map<String, Value> {
    let mut reasons = Map::new();
    let mut note = |name: &str, why: Option<Absent>| {
        if let Some(why) = why.filter(|why| *why != Absent::NOT_SUPPORTED) {
            reasons.insert(name.to_owned(), json!(why.word()));
        }
    };
    note("memory", device.memory.err());
    note("utilization", device.utilization.err());
    note("temperature", device.temperature.err());
    note("fan", device.fan.err());
    note("power", device.power.err());
    note("power_limit", device.power_limit.err());
    note("energy", device.energy.err());
    note("clocks", device.sm_clock.err().or(device.memory_clock.err()));
    note("throttle", device.throttle.err());
    note("ecc", device.ecc_uncorrected.err());
    note("remapped_rows", device.remap_pending.err());
    note("mig", device.mig.err());
    note("processes", device.processes.as_ref().err().copied());
    note("name", absent_why(&device.name));
    note("uuid", absent_why(&device.uuid));
    reasons
}

fn absent_why<T>(reading: &Reading<T>) -> Option<Absent> {
    reading.as_ref().err().copied()
}

fn process_json(board: &Board, device: &DeviceSample, process: &ProcessSample) -> Value {
    let series = board.series(device, Some(process.pid));
    let peak = series.map(|series| series.history.peak());
    let predicted = board.prediction.as_ref().filter(|_| board.is_of_job(process));
    let host = &process.host;
    json!({
        "pid": process.pid,
        "kind": kind_word(process.kind),
        "memory_used_bytes": process.memory.ok(),
        "observed_peak_bytes": peak,
        "predicted_peak_bytes": predicted.map(|prediction| prediction.peak_bytes),
        "prediction_error_ratio": predicted.zip(peak).and_then(|(prediction, peak)| prediction.error_ratio(peak)),
        "memory_trend_bytes_per_second": series.and_then(|series| series.trend).map(|trend| trend.bytes_per_second),
        "sm_percent": process.sm.ok(),
        "name": process.name.as_ref().ok(),
        "command": if let Command::Known(text) = &host.command { Some(text) } else { None },
        "pid_namespace": if host.command == Command::OfTheHost { "host" } else { "own" },
        "user": host.user,
        "container": host.container,
        "job": host.job,
        "rank": host.rank,
        "node": host.node,
        "parent": host.parent,
    })
}

/// The word for what a process does.
pub(crate) fn kind_word(kind: ProcessKind) -> &'static str {
    match kind {
        ProcessKind::Compute => "compute",
        ProcessKind::Graphics => "graphics",
        ProcessKind::Mps => "mps",
    }
}
