//! CSV: a row for each device and each process of every sample; a field that is absent is empty.

use crate::absent::Reading;
use crate::board::Board;
use crate::host::Command;
use crate::sample::DeviceSample;

const HEADER: &str = "time,device,uuid,pid,job,rank,command,memory_used_bytes,memory_free_bytes,memory_total_bytes,\
utilization_percent,temperature_celsius,power_watts,sm_clock_mhz,predicted_peak_bytes,memory_trend_bytes_per_second,alerts\n";

/// Writes rows; the header comes before the first.
#[derive(Debug, Default)]
pub struct Csv {
    begun: bool,
}

impl Csv {
    /// The rows of the newest sample.
    pub fn rows(&mut self, board: &Board) -> String {
        let mut text = if self.begun { String::new() } else { HEADER.to_owned() };
        self.begun = true;
        for device in board.sample.all_devices() {
            text.push_str(&device_row(board, device));
            for row in process_rows(board, device) {
                text.push_str(&row);
            }
        }
        text
    }
}

fn device_row(board: &Board, device: &DeviceSample) -> String {
    let memory = device.memory;
    let trend = board.trend_of_device(device).map(|trend| trend.bytes_per_second.round());
    let of_device = board.alerts.active().iter().filter(|alert| alert.device == device.id() && alert.pid.is_none());
    let alerts: Vec<&str> = of_device.map(|alert| alert.kind.word()).collect();
    csv_row(&[
        format!("{:.3}", board.sample.time),
        quoted_field(&board.label(device)),
        quoted_field(device.uuid.as_deref().unwrap_or_default()),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
        reading_number(&memory.map(|memory| memory.used)),
        reading_number(&memory.map(|memory| memory.free)),
        reading_number(&memory.map(|memory| memory.total)),
        reading_number(&device.utilization),
        reading_number(&device.temperature),
        reading_number(&device.power),
        reading_number(&device.sm_clock),
        String::new(),
        trend.map(|trend| trend.to_string()).unwrap_or_default(),
        alerts.join(" "),
    ])
}

fn process_rows<'a>(board: &'a Board, device: &'a DeviceSample) -> impl Iterator<Item = String> + 'a {
    device.running().iter().map(move |process| {
        let trend = board.trend_of_process(device, process.pid).map(|trend| trend.bytes_per_second.round());
        let predicted = board.prediction.as_ref().filter(|_| board.is_of_job(process));
        let command = if let Command::Known(text) = &process.host.command { text } else { "" };
        let about =
            board.alerts.active().iter().filter(|alert| alert.device == device.id() && alert.pid == Some(process.pid));
        let alerts: Vec<&str> = about.map(|alert| alert.kind.word()).collect();
        csv_row(&[
            format!("{:.3}", board.sample.time),
            quoted_field(&board.label(device)),
            quoted_field(device.uuid.as_deref().unwrap_or_default()),
            process.pid.to_string(),
            quoted_field(process.host.job.as_deref().unwrap_or_default()),
            process.host.rank.map(|rank| rank.to_string()).unwrap_or_default(),
            quoted_field(command),
            reading_number(&process.memory),
            String::new(),
            String::new(),
            reading_number(&process.sm),
            String::new(),
            String::new(),
            String::new(),
            predicted.map(|prediction| prediction.peak_bytes.to_string()).unwrap_or_default(),
            trend.map(|trend| trend.to_string()).unwrap_or_default(),
            alerts.join(" "),
        ])
    })
}

fn csv_row(fields: &[String]) -> String {
    fields.join(",") + "\n"
}

fn reading_number<T: ToString>(reading: &Reading<T>) -> String {
    reading.as_ref().map(T::to_string).unwrap_or_default()
}

/// A text as RFC 4180 wants it; one that a spreadsheet would take for a formula begins with an apostrophe.
fn quoted_field(text: &str) -> String {
    let text = super::printable_text(text);
    let text = if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text };
    if text.contains(['"', ',']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_stays_in_its_field() {
        assert_eq!(quoted_field("python a,\"b\"\n"), "\"python a,\"\"b\"\" \"");
        assert_eq!(quoted_field("=cmd()"), "'=cmd()");
    }
}
