//! TensorBoard's event files, written: what `source::tensorboard` reads. A record is its length, that length's masked CRC-32C, a
//! protobuf `Event`, and its masked CRC-32C.

use crate::run::Run;
use crate::source::masked_crc;
use tonnage_core::small_sort::SmallSort;

/// The scalars of a run as one event file; `began_seconds` since 1970 is the wall time of its beginning.
pub fn event_file(run: &Run, began_seconds: f64) -> Vec<u8> {
    let mut file = file_header(began_seconds);
    let seconds = run.metric("seconds");
    let mut points: Vec<(f64, &str, f64)> = Vec::new();
    for (name, series) in &run.series {
        points.extend(series.points().map(|(step, value)| (step, name.as_str(), value)));
    }
    points.small_sort_by(|a, b| a.0.total_cmp(&b.0));
    for (step, name, value) in points {
        let at = began_seconds + seconds.and_then(|seconds| seconds.value_at(step)).unwrap_or(0.0);
        file.extend(scalar_event(name, step, at, value));
    }
    file
}

/// What a file begins with; `began_seconds` since 1970 is the wall time.
pub fn file_header(began_seconds: f64) -> Vec<u8> {
    let mut file = Vec::new();
    push_record(&mut file, &[fixed64_field(1, began_seconds), bytes_field(3, b"brain.Event:2")].concat());
    file
}

/// The record of one value, `at` seconds since 1970.
pub fn scalar_event(name: &str, step: f64, at: f64, value: f64) -> Vec<u8> {
    let mut file = Vec::new();
    let value = [bytes_field(1, name.as_bytes()), fixed32_field(2, value as f32)].concat();
    push_record(
        &mut file,
        &[fixed64_field(1, at), varint_field(2, step.max(0.0) as u64), bytes_field(5, &bytes_field(1, &value))]
            .concat(),
    );
    file
}

fn push_record(file: &mut Vec<u8>, event: &[u8]) {
    let length = (event.len() as u64).to_le_bytes();
    file.extend_from_slice(&length);
    file.extend_from_slice(&masked_crc(&length).to_le_bytes());
    file.extend_from_slice(event);
    file.extend_from_slice(&masked_crc(event).to_le_bytes());
}

fn varint_bytes(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn varint_field(field: u64, value: u64) -> Vec<u8> {
    [varint_bytes(field << 3), varint_bytes(value)].concat()
}

fn fixed64_field(field: u64, value: f64) -> Vec<u8> {
    [varint_bytes(field << 3 | 1), value.to_le_bytes().to_vec()].concat()
}

fn bytes_field(field: u64, value: &[u8]) -> Vec<u8> {
    [varint_bytes(field << 3 | 2), varint_bytes(value.len() as u64), value.to_vec()].concat()
}

fn fixed32_field(field: u64, value: f32) -> Vec<u8> {
    [varint_bytes(field << 3 | 5), value.to_le_bytes().to_vec()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Limits, gather_runs};

    #[test]
    fn what_is_written_is_read_back() {
        let mut run = Run::default();
        for step in 0..300 {
            run.push("eval/accuracy", f64::from(step * 10), f64::from(step) / 512.0, 0);
            run.push("seconds", f64::from(step * 10), f64::from(step), 0);
        }
        run.push("loss", 5.0, -2.5e-3, 0);
        run.finish();
        let folder = std::env::temp_dir().join(format!("tonnage-events-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("events.out.tfevents.1.tonnage"), event_file(&run, 1e9)).unwrap();
        let gathered = gather_runs(&folder, &Limits::default()).unwrap();
        assert!(gathered.not_read.is_empty(), "{:?}", gathered.not_read);
        let read = &gathered.runs[0];
        assert_eq!(read.series["eval/accuracy"].points().nth(7), Some((70.0, 7.0 / 512.0)));
        assert_eq!(read.series["eval/accuracy"].len(), 300);
        assert_eq!(read.series["loss"].last_point(), Some((5.0, f64::from(-2.5e-3_f32))));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
