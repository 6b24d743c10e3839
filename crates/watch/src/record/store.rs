//! [`Store`]: a history on disk that survives a restart and never outgrows its folder: recordings of a coarse step in
//! segments, the oldest of which go.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _};
use std::path::{Path, PathBuf};
use tonnage_core::small_sort::SmallSort;

use super::reader::Recording;
use super::writer::Recorder;
use crate::os;
use crate::sample::{Sample, Sampler};

/// A segment ends beyond this.
const SEGMENT_BYTES: u64 = 512 * 1024;
/// A segment ends after the sample that took it beyond its end; what is longer is read so far.
const MOST_BYTES: u64 = 16 << 20;
/// So many are kept.
const SEGMENTS: usize = 8;
/// Seconds between two samples that are kept.
const STEP_SECONDS: f64 = 10.0;

/// A folder of segments.
pub struct Store {
    folder: PathBuf,
    number: u64,
    recorder: Recorder<BufWriter<File>>,
    last: f64,
    /// Held as long as this store writes.
    _lock: File,
}

/// Why a folder cannot be used.
#[derive(Debug)]
pub enum StoreError {
    /// Another process writes it.
    InUse,
    /// It cannot be read or written.
    Io(io::Error),
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InUse => write!(f, "another `tonnage watch` writes this history"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl Store {
    /// Opens the history in `folder`, which is made; returns what it holds, the oldest first.
    ///
    /// # Errors
    /// When another process writes it, or it cannot be written.
    pub fn open(folder: &Path) -> Result<(Self, Vec<Sample>), StoreError> {
        let lock = folder.join("lock");
        if lock.exists() {
            // One of before it was private.
            os::make_private(folder)?;
        }
        os::create_private_folder(folder)?;
        let lock = os::lock_file(&lock)?.ok_or(StoreError::InUse)?;
        let segments = list_segments(folder)?;
        segments.iter().try_for_each(|(_, path)| os::make_private(path))?;
        let samples = segments.iter().flat_map(|(_, path)| read_samples(path)).collect();
        let number = segments.last().map_or(1, |(number, _)| number + 1);
        let recorder = Recorder::new(BufWriter::new(private_file(&segment_path(folder, number))?));
        let store = Self { folder: folder.to_owned(), number, recorder, last: f64::NEG_INFINITY, _lock: lock };
        store.drop_oldest()?;
        Ok((store, samples))
    }

    /// Keeps a sample, if it is time for one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&mut self, sample: &Sample) -> io::Result<()> {
        if sample.time - self.last < STEP_SECONDS {
            return Ok(());
        }
        self.last = sample.time;
        if self.recorder.bytes() > SEGMENT_BYTES {
            self.number += 1;
            self.recorder = Recorder::new(BufWriter::new(private_file(&segment_path(&self.folder, self.number))?));
            self.drop_oldest()?;
        }
        self.recorder.write(sample)
    }

    fn drop_oldest(&self) -> io::Result<()> {
        let segments = list_segments(&self.folder)?;
        let old = segments.len().saturating_sub(SEGMENTS);
        segments.iter().take(old).try_for_each(|(_, path)| fs::remove_file(path))
    }
}

/// An empty file at `path` that only its owner can read: it will hold command lines.
///
/// # Errors
/// When it cannot be made.
pub fn private_file(path: &Path) -> io::Result<File> {
    let file = os::private_options().write(true).create(true).truncate(true).open(path)?;
    // One that was there keeps its mode; what is no file (`/dev/stdout`) has none that matters.
    if file.metadata()?.is_file() {
        os::make_private(path)?;
    }
    Ok(file)
}

fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:08}.jsonl"))
}

/// The segments of a folder in their order.
fn list_segments(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let number = |path: PathBuf| {
        let number = path.file_name()?.to_str()?.strip_suffix(".jsonl")?.parse().ok()?;
        Some((number, path))
    };
    let mut found: Vec<_> = fs::read_dir(folder)?.filter_map(|entry| number(entry.ok()?.path())).collect();
    found.small_sort();
    Ok(found)
}

/// What a segment holds; one that cannot be read holds nothing.
fn read_samples(path: &Path) -> Vec<Sample> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text));
    let mut recording = read.ok().and_then(|_| Recording::parse(text).ok()).unwrap_or_default();
    std::iter::from_fn(|| recording.sample()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::absent::Absent;
    use crate::sample::{DeviceSample, Memory};

    fn sample(time: f64) -> Sample {
        let memory = Ok(Memory { total: 1 << 34, reserved: Some(0), used: time as u64, free: (1 << 34) - time as u64 });
        let name = Ok("x".repeat(900));
        let device = DeviceSample { memory, name, ..DeviceSample::absent(0, Absent::NOT_SUPPORTED) };
        Sample { time, driver: Ok("1".to_owned()), cuda: Ok(13000), devices: vec![device], problem: None }
    }

    #[cfg(unix)]
    #[test]
    fn survives_a_restart_and_is_bounded() {
        use std::os::unix::fs::PermissionsExt;

        let folder = std::env::temp_dir().join(format!("tonnage-store-{}", std::process::id()));
        let (mut store, old) = Store::open(&folder).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!([mode(&folder), mode(&segment_path(&folder, 1))], [0o700, 0o600]);
        assert!(old.is_empty() && matches!(Store::open(&folder), Err(StoreError::InUse)));
        for time in 0..200_000 {
            store.keep(&sample(1e6 + f64::from(time))).unwrap();
        }
        drop(store);
        let (_store, old) = Store::open(&folder).unwrap();
        assert_eq!(old.last().unwrap().devices[0].memory.unwrap().used, 1_199_990);
        let bytes: u64 = list_segments(&folder).unwrap().iter().map(|(_, path)| path.metadata().unwrap().len()).sum();
        assert!(bytes < (SEGMENTS as u64 + 1) * (SEGMENT_BYTES + 4096), "{bytes}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
