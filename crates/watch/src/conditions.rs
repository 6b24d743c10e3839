//! The rules of alerts: what the newest sample, beside what is remembered, says that somebody should be told.

use crate::alert::{Alert, AlertKind};
use crate::amount::{mib_text, minutes_text};
use crate::board::Board;
use crate::sample::{DeviceSample, Sample};

/// Less than this left is nearly full.
const NEARLY_FULL: f64 = 0.97;
/// A device that will be full sooner than this is worth a word.
const SOON_SECONDS: f64 = 900.0;
/// Processes that come in the first seconds were there before.
const SETTLE_SECONDS: f64 = 5.0;
/// More than the prediction by this much is above it, not beside it.
const ABOVE: f64 = 1.02;
/// `nvmlClocksEventReasons`: hardware slowdown, software and hardware thermal slowdown.
const HOT: u64 = 0x8 | 0x20 | 0x40;

/// Takes a sample; returns the alerts that it raises.
pub fn observe_sample(board: &mut Board, sample: Sample) -> Vec<Alert> {
    board.remember(sample);
    let found = conditions_of(board);
    board.alerts.update(board.sample.time, found)
}

/// What the newest sample of a board shows.
fn conditions_of(board: &Board) -> Vec<Alert> {
    let mut found = Vec::new();
    for device in board.sample.all_devices() {
        of_health(board, device, &mut found);
        of_memory(board, device, &mut found);
        of_processes(board, device, &mut found);
    }
    found
}

fn make_alert(board: &Board, device: &DeviceSample, kind: AlertKind, text: String, advice: impl Into<String>) -> Alert {
    let (time, advice) = (board.sample.time, advice.into());
    let text = format!("{}: {text}", board.label(device));
    Alert { kind, device: device.id(), pid: None, text, advice, since: time, seen: time }
}

fn of_health(board: &Board, device: &DeviceSample, found: &mut Vec<Alert>) {
    if let Some(why) = device.memory.err().filter(|why| why.is_loss()) {
        let advice = "save the kernel log; reset or replace the GPU";
        found.push(make_alert(board, device, AlertKind::Lost, why.reason().to_owned(), advice));
    }
    for xid in &device.xids {
        found.push(make_alert(board, device, AlertKind::Xid, format!("Xid {xid}"), xid_advice(*xid)));
    }
    if device.ecc_uncorrected.is_ok_and(|count| count > 0) || device.remap_pending == Ok(true) {
        let count = device.ecc_uncorrected.map_or_else(|_| "some".to_owned(), |count| count.to_string());
        let text = format!("{count} uncorrected memory errors");
        found.push(make_alert(
            board,
            device,
            AlertKind::MemoryErrors,
            text,
            "end the job at a checkpoint and reset the GPU",
        ));
    }
    if device.throttle.is_ok_and(|reasons| reasons & HOT != 0) {
        let text = "clocks are held down by heat or power supply".to_owned();
        found.push(make_alert(board, device, AlertKind::Hot, text, "look at cooling and power"));
    }
}

/// NVIDIA's Xid catalog, the classes that trainers meet.
fn xid_advice(xid: u64) -> &'static str {
    match xid {
        13 | 31 | 43 | 45 => "a kernel of the program failed: run with CUDA_LAUNCH_BLOCKING=1",
        48 | 63 | 64 | 92 | 94 | 95 => "a memory error of the GPU: reset it; replace it when it comes again",
        74 => "NVLink failed: look at the links and the fabric manager",
        79 => "the GPU fell off the bus: power, heat or seating; restart the machine",
        119 | 120 => "the GPU's own processor hangs: reset the GPU, update the driver",
        _ => "see NVIDIA's list of Xids",
    }
}

fn of_memory(board: &Board, device: &DeviceSample, found: &mut Vec<Alert>) {
    let Ok(memory) = device.memory else { return };
    if !device.instances.is_empty() {
        return;
    }
    let advice = || board.advice_on_memory(device);
    if memory.total.saturating_sub(memory.free) as f64 >= memory.total as f64 * NEARLY_FULL {
        let text = format!("only {} of memory left", mib_text(memory.free));
        found.push(make_alert(board, device, AlertKind::NearlyFull, text, advice()));
    }
    let Some(trend) = board.trend_of_device(device) else { return };
    let seconds = trend.seconds_to_fill(memory.free);
    let rate = mib_text((trend.bytes_per_second * 60.0) as u64);
    if seconds < SOON_SECONDS {
        let text = format!("grows by {rate} a minute and is full in {}", minutes_text(seconds));
        found.push(make_alert(board, device, AlertKind::FillsUp, text, advice()));
    }
}

fn of_processes(board: &Board, device: &DeviceSample, found: &mut Vec<Alert>) {
    for process in device.running() {
        let about = |alert: Alert| Alert { pid: Some(process.pid), ..alert };
        let Ok(bytes) = process.memory else { continue };
        let predicted = board.prediction.as_ref().filter(|_| board.is_of_job(process));
        if let Some(prediction) = predicted.filter(|prediction| bytes as f64 > prediction.range.1 as f64 * ABOVE) {
            let text = format!(
                "process {} holds {}, {} were predicted",
                process.pid,
                mib_text(bytes),
                mib_text(prediction.peak_bytes)
            );
            found.push(about(make_alert(board, device, AlertKind::AbovePrediction, text, board.key_to_change())));
        }
        let below = predicted.is_some_and(|prediction| bytes <= prediction.range.1);
        if let Some(trend) = board.trend_of_process(device, process.pid).filter(|_| !below) {
            let rate = mib_text((trend.bytes_per_second * 60.0) as u64);
            let text = format!("process {} grows by {rate} a minute since it warmed up", process.pid);
            found.push(about(make_alert(board, device, AlertKind::Leak, text, LEAK_ADVICE)));
        }
        if board.arrived(device, process.pid) > board.began + SETTLE_SECONDS
            && device.running().iter().any(|other| other.pid != process.pid && other.host.job != process.host.job)
            && process.host.job.is_some()
        {
            let job = process.host.job.as_deref().unwrap_or("another job");
            let text = format!("process {} of {job} came and holds {}", process.pid, mib_text(bytes));
            found.push(about(make_alert(board, device, AlertKind::Neighbour, text, "wait, move, or agree on a share")));
        }
    }
}

/// Where tensors that outlive their step come from.
const LEAK_ADVICE: &str = "keep no tensor with its graph between steps (append `loss.item()`, not `loss`); varying lengths need one `max_length`";
