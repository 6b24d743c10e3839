//! Files of a folder, read by the readers that take them, and put together into runs. What cannot be read is named.

use std::fs::{self, File};
use std::io::{BufReader, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use tonnage_core::small_sort::SmallSort;

use super::{Found, Place, READERS, reader_of};
use crate::run::Run;

/// How much is read at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub files: usize,
    /// Folders within folders.
    pub depth: usize,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Values that are kept whole; series that come later are thinned to 256 points.
    pub values: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { files: 100_000, depth: 16, file_bytes: 4 << 30, values: 12_000_000 }
    }
}

/// Points of a thinned series.
const THINNED: usize = 256;
/// Bytes by which a reader is chosen.
const HEAD: usize = 4096;
/// A file beside another is read up to this size.
const MOST_BESIDE: u64 = 64 << 20;

/// What was read.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Runs, in the order of their places.
    pub runs: Vec<Run>,
    /// Files read, by the name of the reader.
    pub read: Vec<(String, &'static str)>,
    /// Files that could not be read, or not wholly.
    pub not_read: Vec<NotRead>,
    /// Files of a kind that holds no metrics.
    pub others: Vec<String>,
    /// Series that were thinned.
    pub thinned: usize,
}

/// A file that could not be read, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRead {
    pub file: String,
    pub why: String,
    /// Whether the rest of it was read.
    pub is_part: bool,
}

/// Reads what `path` names: a file, or a folder of them.
///
/// # Errors
/// When nothing is there.
pub fn gather_runs(path: &Path, limits: &Limits) -> std::io::Result<Gathered> {
    let mut gathered = Gathered::default();
    let mut files = Vec::new();
    let is_folder = fs::metadata(path)?.is_dir();
    if is_folder {
        walk_folder(path, limits, &mut files, &mut gathered)?;
    } else {
        files.push(path.to_owned());
    }
    files.small_sort();
    let root = if is_folder { path } else { path.parent().unwrap_or(Path::new("")) };
    let top = run_name(path, is_folder);
    let outcomes = read_all(&files, root, &top, limits);
    for (file, outcome) in files.iter().zip(outcomes) {
        gathered.take_read(&shown_path(root, file), outcome);
    }
    gathered.join_runs();
    Ok(gathered)
}

/// What a folder is called, also one that is named by dots.
fn run_name(path: &Path, is_folder: bool) -> String {
    let full = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = if is_folder { full.file_name() } else { full.file_stem() };
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn shown_path(root: &Path, file: &Path) -> String {
    let relative = file.strip_prefix(root).unwrap_or(file);
    let parts = relative.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    parts.collect::<Vec<_>>().join("/")
}

/// Files below `folder`; links are not followed, so that none leads round in a circle or out.
fn walk_folder(
    folder: &Path,
    limits: &Limits,
    files: &mut Vec<PathBuf>,
    gathered: &mut Gathered,
) -> std::io::Result<()> {
    let mut folders = vec![(folder.to_owned(), 0)];
    let mut missed = |path: &Path, why: String| {
        gathered.not_read.push(NotRead { file: shown_path(folder, path), why, is_part: false });
    };
    while let Some((path, depth)) = folders.pop() {
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if depth > 0 => {
                missed(&path, error.to_string());
                continue;
            }
            Err(error) => return Err(error),
        };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && depth >= limits.depth {
                missed(&entry.path(), format!("lies deeper than {} folders", limits.depth));
            } else if kind.is_dir() {
                folders.push((entry.path(), depth + 1));
            } else if kind.is_file() && files.len() >= limits.files {
                missed(&entry.path(), format!("more than {} files", limits.files));
                return Ok(());
            } else if kind.is_file() {
                files.push(entry.path());
            } else {
                missed(&entry.path(), "is a link or no plain file".to_owned());
            }
        }
    }
    Ok(())
}

/// What became of a file.
enum Read {
    Found(&'static str, Found),
    Failed(String),
    NotTaken,
    /// It is read with the file that it lies beside.
    Beside,
}

/// Reads all files, several at a time, each by itself.
fn read_all(files: &[PathBuf], root: &Path, top: &str, limits: &Limits) -> Vec<Read> {
    let next = AtomicUsize::new(0);
    let values = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((index, file)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|index| Some((index, files.get(index)?)))
        {
            let mut read = read_file(file, &shown_path(root, file), top, limits);
            if let Read::Found(_, found) = &mut read {
                shrink_series(found, limits, &values);
            }
            done.push((index, read));
        }
        done
    };
    let workers =
        std::thread::available_parallelism().map_or(1, usize::from).min(8).min(files.len().div_ceil(16).max(1));
    let mut all: Vec<(usize, Read)> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        all.extend(others.into_iter().flat_map(|other| other.join().unwrap_or_default()));
        all
    });
    all.small_sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, read)| read).collect()
}

/// Frees what is not needed while others are still read; the most of a report of ten thousand runs is here.
fn shrink_series(found: &mut Found, limits: &Limits, values: &AtomicUsize) {
    for run in &mut found.runs {
        for series in run.series.values_mut() {
            series.finish_points();
            let before = values.fetch_add(series.len(), Ordering::Relaxed);
            if before > limits.values {
                series.thin_out(THINNED);
            }
        }
    }
}

fn read_file(path: &Path, shown: &str, top: &str, limits: &Limits) -> Read {
    let failed = |error: std::io::Error| Read::Failed(error.to_string());
    let name = shown.rsplit('/').next().unwrap_or_default();
    if name == "events.jsonl" && path.with_file_name("run.json").exists() {
        return Read::Beside;
    }
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return failed(error),
    };
    let mut head = Vec::new();
    let begun = (&mut file).take(HEAD as u64).read_to_end(&mut head).and_then(|_| file.rewind());
    if let Err(error) = begun {
        return failed(error);
    }
    let Some(reader) = reader_of(name, &head) else { return not_taken(name) };
    match file.metadata() {
        Ok(metadata) if metadata.len() > limits.file_bytes => {
            return Read::Failed(format!("is larger than {} GiB", limits.file_bytes >> 30));
        }
        Err(error) => return failed(error),
        Ok(_) => {}
    }
    let beside = |name: &str| {
        let mut bytes = Vec::new();
        File::open(path.with_file_name(name)).ok()?.take(MOST_BESIDE).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    };
    let place = Place { path: shown, top, beside: &beside };
    let mut input = BufReader::with_capacity(1 << 16, file.take(limits.file_bytes));
    match (reader.read)(&mut input, &place) {
        Ok(found) => Read::Found(reader.name, found),
        Err(why) => Read::Failed(format!("{}: {why}", reader.name)),
    }
}

/// Of files that no reader takes, those that hold metrics in a form that is not read.
fn not_taken(name: &str) -> Read {
    if name.ends_with(".wandb") {
        let why = "W&B's own format, which only its package reads: export the history as CSV or JSON";
        return Read::Failed(why.to_owned());
    }
    let holds = [".csv", ".tsv", ".jsonl", ".ndjson"].iter().any(|ending| name.ends_with(ending));
    let packed = [".gz", ".zst", ".xz", ".zip", ".parquet", ".pkl", ".npz", ".db", ".sqlite"]
        .iter()
        .any(|ending| name.ends_with(ending));
    match (holds, packed) {
        (true, _) => Read::Failed("does not begin as a file of metrics does".to_owned()),
        (_, true) => Read::Failed("is compressed or binary: unpack or export it".to_owned()),
        _ => Read::NotTaken,
    }
}

impl Gathered {
    fn take_read(&mut self, file: &str, read: Read) {
        match read {
            Read::NotTaken => self.others.push(file.to_owned()),
            Read::Beside => {}
            Read::Failed(why) => self.not_read.push(NotRead { file: file.to_owned(), why, is_part: false }),
            Read::Found(reader, found) => {
                self.read.push((file.to_owned(), reader));
                if found.passed_over > 0 {
                    let (line, why) = found.first.unwrap_or_default();
                    let of = if line > 0 { format!(", the first is line {line}: {why}") } else { String::new() };
                    let why = format!("{} lines or records could not be read{of}", found.passed_over);
                    self.not_read.push(NotRead { file: file.to_owned(), why, is_part: true });
                }
                for run in &found.runs {
                    self.thinned += run.series.values().filter(|series| series.len() < series.count()).count();
                }
                self.runs.extend(found.runs);
            }
        }
    }

    /// Runs of one place become one; checkpoints' histories of one run are the longest's.
    fn join_runs(&mut self) {
        let mut index = std::collections::HashMap::new();
        let mut runs: Vec<Run> = Vec::with_capacity(self.runs.len());
        for run in std::mem::take(&mut self.runs) {
            match index.get(&run.place) {
                Some(at) => {
                    let there: &mut Run = &mut runs[*at];
                    there.join(run);
                }
                None => {
                    index.insert(run.place.clone(), runs.len());
                    runs.push(run);
                }
            }
        }
        runs.iter_mut().for_each(Run::finish);
        self.runs = runs;
    }

    /// The readers there are, for who finds nothing.
    pub fn forms() -> String {
        let rows = READERS.iter().map(|reader| format!("{}: {}", reader.name, reader.files));
        rows.collect::<Vec<_>>().join("; ")
    }
}
