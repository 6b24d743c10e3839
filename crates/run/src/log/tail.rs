//! [`LogTail`]: the ends of logs.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// The ends of an attempt's logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogTail {
    pub stdout: String,
    pub stderr: String,
}

impl LogTail {
    /// What is read of each at most: tracebacks of all ranks and more.
    const BYTES: u64 = 512 << 10;

    /// Reads the logs in `folder`.
    pub fn read(folder: &Path) -> Self {
        let tail = |name: &str| {
            let (older, newer) = (folder.join(older_name(name)), folder.join(name));
            let end = log_end(&newer, Self::BYTES).unwrap_or_default();
            let before = Self::BYTES.saturating_sub(end.len() as u64);
            // A log that has just begun anew has its last words in the older part.
            let text = [tail_of(before, &older), end].concat();
            String::from_utf8_lossy(&text).into_owned()
        };
        Self { stdout: tail("stdout.log"), stderr: tail("stderr.log") }
    }

    /// Both, stderr last: a traceback is the last that is written.
    pub fn text(&self) -> String {
        format!("{}\n{}", self.stdout, self.stderr)
    }
}

/// The name of a log's older part.
fn older_name(name: &str) -> String {
    format!("{name}.1")
}

fn tail_of(bytes: u64, path: &Path) -> Vec<u8> {
    if bytes == 0 { Vec::new() } else { log_end(path, bytes).unwrap_or_default() }
}

/// The last `bytes` of the log at `path`.
///
/// # Errors
/// When it cannot be read.
pub fn log_end(path: &Path, bytes: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(bytes)))?;
    let mut text = Vec::new();
    file.take(bytes).read_to_end(&mut text)?;
    Ok(text)
}
