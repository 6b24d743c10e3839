//! How far a job is, from the end of its logs: the journal hears of it now and then only.

use std::path::Path;
use std::time::UNIX_EPOCH;

use tonnage_core::progress::{Lines, Progress, Tracker};

use super::log_end;

/// What is read of a log's end for its last progress.
const END_BYTES: u64 = 16 << 10;

/// The last progress in the logs of the attempt in `folder`, and when its log was written last, in milliseconds since 1970.
pub fn latest_progress(folder: &Path) -> Option<(Progress, u64)> {
    let last = |name: &str| {
        let path = folder.join(name);
        let written = path.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        let end = log_end(&path, END_BYTES).ok()?;
        Some((in_text(&end)?, u64::try_from(written.as_millis()).unwrap_or(u64::MAX)))
    };
    ["stdout.log", "stderr.log"].into_iter().filter_map(last).max_by_key(|(_, at_ms)| *at_ms)
}

/// What the whole lines of `text` say; of a last one without an end, only a bar.
fn in_text(text: &[u8]) -> Option<Progress> {
    let (mut lines, mut tracker) = (Lines::default(), Tracker::default());
    lines.feed(text, |line| tracker.read_line(line, 0));
    tracker.read_rest(&lines.rest(), 0, false);
    tracker.progress()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_being_written_is_not_read() {
        let found = |text: &str| in_text(text.as_bytes()).map(|now| now.step);
        assert_eq!(found("step 122/500\nstep 1"), Some(122));
        assert_eq!(found("step 1"), None);
        assert_eq!(found("\r 10%|#| 50/500 [00:01<00:10, 40.0it/s]"), Some(50));
        assert_eq!(found("\r 10%|#| 50/500 [00:01<00:1"), None);
    }
}
