//! [`Follower`]: what is added to a log.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

/// Reads a log as it grows, from where it was left.
pub struct Follower {
    path: PathBuf,
    at: u64,
}

impl Follower {
    /// Of the log at `path`, from its beginning, or from its end.
    pub fn new(path: PathBuf, from_end: bool) -> Self {
        let size = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        Self { path, at: if from_end { size } else { 0 } }
    }

    /// What came since; a log that began anew is read from its beginning.
    pub fn more(&mut self) -> Vec<u8> {
        let Ok(mut file) = File::open(&self.path) else { return Vec::new() };
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        if size < self.at {
            let rest = self.rest_of_the_older_part();
            self.at = 0;
            return rest;
        }
        let mut bytes = Vec::new();
        let read = file.seek(SeekFrom::Start(self.at)).and_then(|_| file.take(1 << 20).read_to_end(&mut bytes));
        self.at += read.map_or(0, |count| count as u64);
        bytes
    }
}

impl Follower {
    fn rest_of_the_older_part(&self) -> Vec<u8> {
        let mut rest = Vec::new();
        let older = self.path.with_extension("log.1");
        // Gone, or shorter than what was read: there is no rest.
        let read = File::open(older).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.at))?;
            file.read_to_end(&mut rest)
        });
        if read.is_err() { Vec::new() } else { rest }
    }
}
