//! Reads recordings: timelines and PyTorch's snapshots, compressed or not.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use flate2::read::MultiGzDecoder;
use tonnage_core::limit::{LINE_BYTES, RECORDING_BYTES};
use tonnage_core::recording::{Recording, TimelineError, TimelineReader, read_snapshot};
use tonnage_core::units::Bytes;

use crate::failure::Failure;

/// The first two bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The first byte of a pickle of protocol 2 and later.
const PICKLE: u8 = 0x80;

/// The recording in the file at `path`; of a snapshot, the events of `device`.
///
/// # Errors
/// When the file cannot be read or is neither.
pub fn read_recording(path: &str, device: usize) -> Result<Recording, Failure> {
    let failed = |error| Failure::about_file(path, &error);
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let is_gzip = file.fill_buf().map_err(failed)?.starts_with(&GZIP);
    let content: Box<dyn Read> = if is_gzip { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let source = Source { path, how: if is_gzip { "unpacked" } else { "read" }, most: RECORDING_BYTES };
    source.read_content(BufReader::new(content), device)
}

/// Where a recording comes from, and how much of it is taken.
struct Source<'a> {
    path: &'a str,
    how: &'a str,
    most: u64,
}

impl Source<'_> {
    fn read_content(&self, mut content: impl BufRead, device: usize) -> Result<Recording, Failure> {
        let first = content.fill_buf().map_err(|error| self.read_failed(&error))?.first().copied();
        if first != Some(PICKLE) {
            return self.read_timeline(content);
        }
        let mut bytes = Vec::new();
        content.take(self.most + 1).read_to_end(&mut bytes).map_err(|error| self.read_failed(&error))?;
        if bytes.len() as u64 > self.most {
            return Err(self.too_large());
        }
        read_snapshot(&bytes, device).map_err(|error| {
            Failure::bad_input(format!("{}: {error}", self.path)).with_hint(
                "call torch.cuda.memory._record_memory_history() before the job and _dump_snapshot() after it",
            )
        })
    }

    /// Reads line by line, so that the text is never held.
    fn read_timeline(&self, mut content: impl BufRead) -> Result<Recording, Failure> {
        let (mut reader, mut line, mut left) = (TimelineReader::default(), Vec::new(), self.most);
        loop {
            line.clear();
            // One byte more than a line may have, so that a longer one is refused by its length.
            let most = (LINE_BYTES as u64 + 2).min(left + 1);
            let count =
                content.by_ref().take(most).read_until(b'\n', &mut line).map_err(|error| self.read_failed(&error))?;
            if count == 0 {
                break;
            }
            left = left.checked_sub(count as u64).ok_or_else(|| self.too_large())?;
            let text = str::from_utf8(&line).map_err(|_| self.unknown_format())?;
            if !reader.has_begun() && !text.trim().is_empty() && !text.trim_start().starts_with('{') {
                return Err(self.unknown_format());
            }
            reader.read_line(text).map_err(|error| self.wrong_timeline(&error))?;
        }
        if reader.has_begun() {
            reader.finish().map_err(|error| self.wrong_timeline(&error))
        } else {
            Err(self.unknown_format())
        }
    }

    fn read_failed(&self, error: &std::io::Error) -> Failure {
        Failure::about_file(self.path, error)
    }

    fn wrong_timeline(&self, error: &TimelineError) -> Failure {
        Failure::bad_input(format!("{}:{}: {}", self.path, error.line, error.reason))
    }

    fn too_large(&self) -> Failure {
        let failure =
            Failure::bad_input(format!("{}: more than {} when it is {}", self.path, Bytes(self.most), self.how));
        failure.with_hint("record fewer events: torch.cuda.memory._record_memory_history(max_entries=100000)")
    }

    fn unknown_format(&self) -> Failure {
        Failure::bad_input(format!("{}: neither a timeline nor a memory snapshot", self.path))
            .with_hint("`tonnage trace write` writes timelines, torch.cuda.memory._dump_snapshot() snapshots")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn refusal(bytes: &[u8], most: u64) -> String {
        let source = Source { path: "bomb.gz", how: "unpacked", most };
        let failure = source.read_content(BufReader::new(MultiGzDecoder::new(bytes)), 0).unwrap_err();
        assert!(failure.hint.is_some() || failure.problem.contains("bomb.gz:"), "{}", failure.problem);
        failure.problem
    }

    fn packed(text: &[u8], times: usize) -> Vec<u8> {
        let mut member = GzEncoder::new(Vec::new(), Compression::fast());
        member.write_all(text).unwrap();
        member.finish().unwrap().repeat(times)
    }

    #[test]
    fn what_unpacks_to_more_than_the_limit_is_refused() {
        let zeros = packed(&[&[PICKLE][..], &[0; 4095]].concat(), 100);
        assert_eq!(refusal(&zeros, 409_599), "bomb.gz: more than 400.0 KiB when it is unpacked");
        assert!(refusal(&zeros, 409_600).contains("not a readable pickle"));
        let lines = [packed(b"{}\n", 1), packed(b"\n\n\n\n\n\n", 100)].concat();
        assert_eq!(refusal(&lines, 511), "bomb.gz: more than 511 B when it is unpacked");
        assert!(refusal(&packed(&[b'\n'; 600], 1), 600).contains("neither a timeline nor"));
    }

    #[test]
    fn a_line_without_an_end_is_refused_before_it_is_held() {
        let endless = packed(&[b"{}\n".as_slice(), &b"x".repeat(LINE_BYTES + 1)].concat(), 1);
        assert_eq!(refusal(&endless, RECORDING_BYTES), "bomb.gz:2: a line of 1048577 bytes is none of a timeline");
    }
}
