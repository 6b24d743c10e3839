//! A log that is written.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A log grows to this and begins anew, its last part kept: gigabytes of output must not fill the disk.
const MAX_LOG_BYTES: u64 = 256 << 20;

/// A log file.
pub(crate) struct Log {
    path: PathBuf,
    /// `None` where it cannot be written.
    file: Option<File>,
    bytes: u64,
    most: u64,
}

impl Log {
    /// The log `name` in `folder`, empty.
    pub fn create(folder: &Path, name: &str) -> Self {
        let path = folder.join(name);
        let file = Self::open(&path).ok();
        Self { path, file, bytes: 0, most: MAX_LOG_BYTES }
    }

    fn open(path: &Path) -> std::io::Result<File> {
        // Appended to: a guardian may add the last words after the supervisor's death.
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        file.set_len(0)?;
        Ok(file)
    }

    /// A disk that is full, or gone, stops the log, never the job.
    pub fn write(&mut self, bytes: &[u8]) {
        if self.bytes > self.most
            && fs::rename(&self.path, self.path.with_extension("log.1")).is_ok()
            && let Ok(file) = Self::open(&self.path)
        {
            (self.file, self.bytes) = (Some(file), 0);
        }
        if self.file.as_mut().is_some_and(|file| file.write_all(bytes).is_ok()) {
            self.bytes += bytes.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Follower, LogTail};

    #[test]
    fn a_log_begins_anew_and_nothing_of_its_end_is_lost() {
        let folder = std::env::temp_dir().join(format!("tonnage-log-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut log = Log { most: 100, ..Log::create(&folder, "stderr.log") };
        let mut follower = Follower::new(folder.join("stderr.log"), false);
        let mut followed = Vec::new();
        for number in 0..50 {
            log.write(format!("line {number}\n").as_bytes());
            if number % 3 == 0 {
                followed.extend(follower.more());
            }
        }
        followed.extend(follower.more());
        followed.extend(follower.more());
        let lines: Vec<String> = String::from_utf8(followed).unwrap().lines().map(str::to_owned).collect();
        assert_eq!(lines, (0..50).map(|number| format!("line {number}")).collect::<Vec<_>>());
        let kept: u64 = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.metadata().unwrap().len()).sum();
        assert!(kept <= 220, "{kept}");
        let tail = LogTail::read(&folder).stderr;
        assert!(tail.ends_with("line 48\nline 49\n") && tail.contains("line 37\n"), "{tail}");
        fs::remove_dir_all(folder).unwrap();
    }
}
