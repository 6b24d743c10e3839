//! The devices, a line each: as many columns as there is room for.

use ratatui::text::{Line, Span};

use super::app::{App, Levels};
use super::theme::{Level, Theme};
use crate::absent::Reading;
use crate::amount::{mib_text, minutes_text};
use crate::board::Board;
use crate::sample::{DeviceSample, Memory};

/// The lines of all devices and instances.
pub(super) fn device_lines(board: &Board, app: &App, width: usize) -> Vec<Line<'static>> {
    if board.sample.devices.is_empty() && board.sample.problem.is_none() {
        return vec![Line::raw("no GPU")];
    }
    let widest = label_width(board);
    board.sample.all_devices().map(|device| device_line(board, device, app, (width, widest))).collect()
}

/// What the columns of [`lines`] are.
pub(super) fn heading_line(board: &Board, app: &App, width: usize) -> Line<'static> {
    let mut before = format!("{:<1$} ", "GPU", label_width(board));
    if width >= 100 {
        before = format!("{before}{:<20} ", "NAME");
    }
    let mut after = if width < 60 {
        format!("{:>8} {:>4}", "USED", "MEM")
    } else {
        format!("{:>9}/{:<9} {:>4}", "USED", "TOTAL", "MEM")
    };
    let rest = [(0, " UTIL"), (60, " TEMP"), (72, "     POWER"), (100, "               ")];
    rest.into_iter().filter(|(least, _)| width >= *least).for_each(|(_, column)| after += column);
    let room = width.saturating_sub(before.chars().count() + after.chars().count() + 1);
    Line::styled(format!("{before}{:<room$} {after}", "MEMORY"), app.theme.bold())
}

/// The columns that names of devices take.
pub(super) fn label_width(board: &Board) -> usize {
    board.sample.all_devices().map(|device| board.label(device).len()).max().unwrap_or(0)
}

fn device_line(board: &Board, device: &DeviceSample, app: &App, (width, widest): (usize, usize)) -> Line<'static> {
    let theme = app.theme;
    let mut before = format!("{:<widest$} ", board.label(device));
    if width >= 100 {
        before = format!("{before}{:<20.20} ", short_name(&theme.text(device.name.as_deref().unwrap_or("-"))));
    }
    let after = device_figures(board, device, theme, width);
    let level = device.memory.map_or(Level::High, |memory| memory_level(app.levels, memory.ratio()));
    let room = width.saturating_sub(before.chars().count() + after.chars().count() + 3);
    let middle = match device.memory {
        Ok(memory) => format!("[{}]", theme.bar(memory.ratio(), room)),
        Err(why) => format!("{:<1$}", why.reason(), room + 2),
    };
    Line::from(vec![Span::raw(before), Span::styled(middle, theme.level(level)), Span::raw(format!(" {after}"))])
}

/// `NVIDIA H100 80GB HBM3` without the maker.
fn short_name(name: &str) -> &str {
    name.strip_prefix("NVIDIA ").unwrap_or(name)
}

fn memory_level(levels: Levels, ratio: f64) -> Level {
    match ratio {
        ratio if ratio >= levels.high => Level::High,
        ratio if ratio >= levels.middle => Level::Middle,
        _ => Level::Low,
    }
}

fn device_figures(board: &Board, device: &DeviceSample, theme: Theme, width: usize) -> String {
    let mut parts = vec![memory_text(device.memory, width), padded_reading(&device.utilization, "%", 4)];
    if width >= 60 {
        parts.push(padded_reading(&device.temperature, theme.degrees(), 4));
    }
    if width >= 72 {
        parts.push(format!("{:>9}", power_text(&device.power, &device.power_limit)));
    }
    if width >= 100 {
        let full = board.seconds_to_full(device);
        let text = full.map_or_else(String::new, |seconds| format!("full in {}", minutes_text(seconds)));
        parts.push(format!("{text:<14}"));
    }
    parts.join(" ")
}

fn power_text(now: &Reading<f64>, limit: &Reading<f64>) -> String {
    let watts = |power: &Reading<f64>| power.map_or_else(|_| "-".to_owned(), |watts| format!("{watts:.0}"));
    if now.is_err() && limit.is_err() { watts(now) } else { format!("{}/{}W", watts(now), watts(limit)) }
}

fn memory_text(memory: Reading<Memory>, width: usize) -> String {
    match memory {
        Ok(memory) if width < 60 => format!("{:>8} {:>3.0}%", mib_text(memory.used), memory.ratio() * 100.0),
        Err(_) if width < 60 => format!("{:>8} {:>4}", "-", "-"),
        Ok(memory) => {
            format!("{:>9}/{:<9} {:>3.0}%", mib_text(memory.used), mib_text(memory.total), memory.ratio() * 100.0)
        }
        Err(_) => format!("{:>9}/{:<9} {:>4}", "-", "-", "-"),
    }
}

fn padded_reading<T: std::fmt::Display>(reading: &Reading<T>, unit: &str, width: usize) -> String {
    let text = reading.as_ref().map_or_else(|_| "-".to_owned(), |value| format!("{value}{unit}"));
    format!("{text:>width$}")
}
