//! Reads recordings: timelines and PyTorch's snapshots, compressed or not.

use std::fs;
use std::io::Read;

use flate2::read::MultiGzDecoder;
use tonnage_core::recording::{Recording, read_snapshot, read_timeline};

use crate::failure::Failure;

/// The first two bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The first byte of a pickle of protocol 2 and later.
const PICKLE: u8 = 0x80;
/// Nothing that is unpacked may be larger: 4 GiB.
const LARGEST: u64 = 4 << 30;

/// The recording in the file at `path`; of a snapshot, the events of `device`.
///
/// # Errors
/// When the file cannot be read or is neither.
pub fn read(path: &str, device: usize) -> Result<Recording, Failure> {
    let bytes = unpacked(path, fs::read(path).map_err(|error| Failure::file(path, &error))?)?;
    if bytes.first() == Some(&PICKLE) {
        return read_snapshot(&bytes, device).map_err(|error| {
            Failure::input(format!("{path}: {error}"))
                .hint("call torch.cuda.memory._record_memory_history() before the job and _dump_snapshot() after it")
        });
    }
    let unknown = || {
        Failure::input(format!("{path}: neither a timeline nor a memory snapshot"))
            .hint("`tonnage trace write` writes timelines, torch.cuda.memory._dump_snapshot() snapshots")
    };
    let text = String::from_utf8(bytes).map_err(|_| unknown())?;
    if !text.trim_start().starts_with('{') {
        return Err(unknown());
    }
    read_timeline(&text).map_err(|error| Failure::input(format!("{path}:{}: {}", error.line, error.reason)))
}

fn unpacked(path: &str, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
    if !bytes.starts_with(&GZIP) {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    let read = MultiGzDecoder::new(bytes.as_slice()).take(LARGEST).read_to_end(&mut unpacked);
    read.map_err(|error| Failure::file(path, &error))?;
    Ok(unpacked)
}
