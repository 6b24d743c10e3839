//! A board as plain text, for one look (`--once`) and for an output that is no terminal.

use std::fmt::Write as _;

use super::printable_text;
use crate::absent::Reading;
use crate::amount::{mib_text, minutes_text};
use crate::board::Board;
use crate::host::Command;
use crate::sample::{DeviceSample, ProcessSample};
use crate::suites::{suite_headline, suite_run_lines};

/// Lines of a suite: which run is where, and what is next.
const SUITE_LINES: usize = 16;
/// What stands for a reading that is absent.
const ABSENT: &str = "-";

/// The whole board in lines of at most `width` columns.
pub fn plain_table(board: &Board, width: usize) -> String {
    let sample = &board.sample;
    let mut text = String::new();
    let cuda = sample.cuda.map_or_else(|_| ABSENT.to_owned(), |cuda| format!("{}.{}", cuda / 1000, cuda % 1000 / 10));
    // Writing to a string does not fail.
    let _ = writeln!(text, "driver {} · CUDA {cuda}", sample.driver.as_deref().unwrap_or(ABSENT));
    if let Some(prediction) = &board.prediction {
        let (low, high) = (mib_text(prediction.range.0), mib_text(prediction.range.1));
        let _ = writeln!(
            text,
            "predicted: {} a process ({low} to {high}), {}",
            mib_text(prediction.peak_bytes),
            printable_text(&prediction.job)
        );
    }
    if let Some(why) = sample.problem {
        let _ = writeln!(text, "GPUs cannot be counted: {}", why.reason());
    } else if sample.devices.is_empty() {
        text.push_str("no GPU\n");
    }
    for device in sample.all_devices() {
        text.push_str(&device_lines(board, device));
    }
    for suite in &board.suites {
        let _ = writeln!(text, "{}", suite_headline(suite));
        suite_run_lines(suite, SUITE_LINES).iter().for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    for alert in board.alerts.active() {
        let _ = writeln!(text, "! {}\n  {}", printable_text(&alert.text), printable_text(&alert.advice));
    }
    text.lines().map(|line| cut_line(line, width) + "\n").collect()
}

fn device_lines(board: &Board, device: &DeviceSample) -> String {
    let memory = match device.memory {
        Ok(memory) => {
            format!("{} of {} ({:.0} %)", mib_text(memory.used), mib_text(memory.total), memory.ratio() * 100.0)
        }
        Err(why) => why.reason().to_owned(),
    };
    let figures = [
        shown_reading(&device.utilization, "%"),
        shown_reading(&device.temperature, "°C"),
        format!(
            "{}/{}",
            shown_reading(&device.power.map(f64::round), "W"),
            shown_reading(&device.power_limit.map(f64::round), "W")
        ),
    ];
    let name = printable_text(device.name.as_deref().unwrap_or(ABSENT));
    let mut text = format!("{:<12} {name:<24} {memory:<30} {}\n", board.label(device), figures.join(" "));
    if let (Some(trend), Some(seconds)) = (board.trend_of_device(device), board.seconds_to_full(device)) {
        let rate = mib_text((trend.bytes_per_second * 60.0) as u64);
        let _ = writeln!(text, "    grows by {rate} a minute, full in {}", minutes_text(seconds));
    }
    match &device.processes {
        Ok(processes) => processes.iter().for_each(|each| text.push_str(&process_line(board, device, each))),
        Err(why) if device.instances.is_empty() && !why.is_loss() => {
            let _ = writeln!(text, "    processes: {}", why.reason());
        }
        Err(_) => {}
    }
    text
}

fn process_line(board: &Board, device: &DeviceSample, process: &ProcessSample) -> String {
    let memory = process.memory.map_or_else(|_| ABSENT.to_owned(), mib_text);
    let trend = board.trend_of_process(device, process.pid);
    let trend =
        trend.map_or_else(String::new, |trend| format!(" +{}/min", mib_text((trend.bytes_per_second * 60.0) as u64)));
    let sm = shown_reading(&process.sm, "%");
    format!("    {:>8} {memory:>11}{trend} {sm:>5} {}\n", process.pid, process_label(process))
}

/// Whose process it is and what it runs, as far as known.
pub(crate) fn process_label(process: &ProcessSample) -> String {
    let host = &process.host;
    let name = process.name.as_deref().unwrap_or("a process");
    let command = match &host.command {
        Command::Known(text) => text.clone(),
        Command::Unknown => name.to_owned(),
        Command::Gone => format!("{name} (ended, or not to be seen from here)"),
        Command::OfTheHost => format!("{name} (the id is the host's, not this container's)"),
    };
    // A node's name says more than its number.
    let rank = host.node.clone().or_else(|| host.rank.map(|rank| format!("rank {rank}")));
    let container = host.container.as_ref().map(|id| format!("container {id}"));
    let parts = [host.user.clone(), host.job.clone(), rank, container, Some(command)];
    printable_text(&parts.into_iter().flatten().collect::<Vec<_>>().join(" · "))
}

pub(crate) fn shown_reading<T: std::fmt::Display>(reading: &Reading<T>, unit: &str) -> String {
    reading.as_ref().map_or_else(|_| ABSENT.to_owned(), |value| format!("{value} {unit}"))
}

fn cut_line(line: &str, width: usize) -> String {
    line.trim_end().chars().take(width).collect()
}
