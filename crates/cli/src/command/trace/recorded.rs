//! Reads recordings: timelines and PyTorch's snapshots, compressed or not.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use flate2::read::MultiGzDecoder;
use tonnage_core::recording::{Recording, read_snapshot, read_timeline};
use tonnage_core::units::Bytes;

use crate::failure::Failure;

/// The first two bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The first byte of a pickle of protocol 2 and later.
const PICKLE: u8 = 0x80;
/// Nothing that is read or unpacked may be larger: a file of a few megabytes can unpack to any size.
const LARGEST: u64 = 192 << 20;

/// The recording in the file at `path`; of a snapshot, the events of `device`.
///
/// # Errors
/// When the file cannot be read or is neither.
pub fn read(path: &str, device: usize) -> Result<Recording, Failure> {
    let bytes = unpacked(path)?;
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

fn unpacked(path: &str) -> Result<Vec<u8>, Failure> {
    let failed = |error| Failure::file(path, &error);
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let is_gzip = file.fill_buf().map_err(failed)?.starts_with(&GZIP);
    if is_gzip {
        bounded(path, MultiGzDecoder::new(file), "unpacked", LARGEST)
    } else {
        bounded(path, file, "read", LARGEST)
    }
}

fn bounded(path: &str, source: impl Read, how: &str, most: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    source.take(most + 1).read_to_end(&mut bytes).map_err(|error| Failure::file(path, &error))?;
    if bytes.len() as u64 > most {
        let failure = Failure::input(format!("{path}: more than {} when it is {how}", Bytes(most)));
        return Err(failure.hint("record fewer events: torch.cuda.memory._record_memory_history(max_entries=100000)"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn what_unpacks_to_more_than_the_limit_is_refused() {
        let mut member = GzEncoder::new(Vec::new(), Compression::fast());
        member.write_all(&[0; 4096]).unwrap();
        let bomb = member.finish().unwrap().repeat(100);
        let read = |most| bounded("bomb.gz", MultiGzDecoder::new(bomb.as_slice()), "unpacked", most);
        assert_eq!(read(409_600).unwrap().len(), 409_600);
        let failure = read(409_599).unwrap_err();
        assert!(failure.problem.starts_with("bomb.gz: more than 400.0 KiB when it is unpacked"), "{}", failure.problem);
        assert!(failure.hint.is_some());
    }
}
