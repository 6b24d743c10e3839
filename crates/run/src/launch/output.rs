//! What a command writes: into its logs whole, onto the screen labelled, and read on the way for progress.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::RunError;
use crate::store::now_ms;
use crate::supervise::progress::{Progress, progress};

/// A log grows to this and begins anew, its last part kept: gigabytes of output must not fill the disk.
const MAX_LOG_BYTES: u64 = 256 << 20;
/// What is read at once.
const CHUNK: usize = 64 << 10;
/// A line without an end is shown from this length on.
const MAX_LINE: usize = 8 << 10;

/// Where lines are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Screen {
    /// Nowhere.
    #[default]
    Dark,
    /// As they come.
    Plain,
    /// Line by line, each with a label.
    Labelled(String),
}

/// What is known of a command's output so far.
#[derive(Debug, Default)]
struct Heard {
    last_ms: AtomicU64,
    bytes: AtomicU64,
    progress: Mutex<Option<Progress>>,
}

/// A command's output.
#[derive(Debug)]
pub struct Output {
    folder: PathBuf,
    heard: Arc<Heard>,
    readers: Vec<JoinHandle<()>>,
}

impl Output {
    /// Reads both pipes to their end, each in a thread.
    pub(super) fn follow(
        (stdout, stderr): (Option<ChildStdout>, Option<ChildStderr>),
        folder: &Path,
        screen: Screen,
    ) -> Result<Self, RunError> {
        let heard = Arc::new(Heard { last_ms: now_ms().into(), ..Heard::default() });
        let mut readers = Vec::new();
        if let Some(pipe) = stdout {
            readers.push(reader(pipe, Log::create(folder, "stdout.log")?, std::io::stdout(), &screen, &heard));
        }
        if let Some(pipe) = stderr {
            readers.push(reader(pipe, Log::create(folder, "stderr.log")?, std::io::stderr(), &screen, &heard));
        }
        Ok(Self { folder: folder.to_owned(), heard, readers })
    }

    /// When something was written last, in milliseconds since 1970.
    pub fn last_ms(&self) -> u64 {
        self.heard.last_ms.load(Ordering::Relaxed)
    }

    /// The last progress that a line said.
    pub fn progress(&self) -> Option<Progress> {
        *self.heard.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until both pipes are closed.
    pub(super) fn finish(&mut self) {
        for reader in self.readers.drain(..) {
            // A reader that died has left its log as it is.
            let _ = reader.join();
        }
    }

    /// The ends of its logs.
    pub fn tail(&self) -> LogTail {
        LogTail::read(&self.folder)
    }
}

/// The ends of an attempt's logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogTail {
    /// Of stdout.
    pub stdout: String,
    /// Of stderr.
    pub stderr: String,
}

impl LogTail {
    /// What is read of each at most: tracebacks of all ranks and more.
    const BYTES: u64 = 512 << 10;

    /// Reads the logs in `folder`.
    pub fn read(folder: &Path) -> Self {
        let tail = |name: &str| {
            let (older, newer) = (folder.join(older(name)), folder.join(name));
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
fn older(name: &str) -> String {
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

struct Log {
    path: PathBuf,
    file: File,
    bytes: u64,
    most: u64,
}

impl Log {
    fn create(folder: &Path, name: &str) -> Result<Self, RunError> {
        let path = folder.join(name);
        let file = Self::open(&path).map_err(|error| RunError::file(&path, &error))?;
        Ok(Self { path, file, bytes: 0, most: MAX_LOG_BYTES })
    }

    fn open(path: &Path) -> std::io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
    }

    /// A disk that is full stops the log, never the job.
    fn write(&mut self, bytes: &[u8]) {
        if self.bytes > self.most
            && fs::rename(&self.path, self.path.with_extension("log.1")).is_ok()
            && let Ok(file) = Self::open(&self.path)
        {
            (self.file, self.bytes) = (file, 0);
        }
        if self.file.write_all(bytes).is_ok() {
            self.bytes += bytes.len() as u64;
        }
    }
}

fn reader(
    mut pipe: impl Read + Send + 'static,
    mut log: Log,
    stream: impl Write + Send + 'static,
    screen: &Screen,
    heard: &Arc<Heard>,
) -> JoinHandle<()> {
    let mut shown = Shown { screen: screen.clone(), stream, pending: Vec::new() };
    let heard = Arc::clone(heard);
    thread::spawn(move || {
        let mut chunk = vec![0; CHUNK];
        loop {
            match pipe.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => {
                    let bytes = &chunk[..count];
                    log.write(bytes);
                    shown.show(bytes);
                    listen(&heard, bytes);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        shown.end();
    })
}

fn listen(heard: &Heard, bytes: &[u8]) {
    heard.last_ms.store(now_ms(), Ordering::Relaxed);
    heard.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    // Of much at once, only the end says where it is.
    let end = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(MAX_LINE)..]);
    let found = end.rsplit(['\n', '\r']).find_map(progress);
    if let Some(found) = found {
        *heard.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }
}

struct Shown<W> {
    screen: Screen,
    stream: W,
    pending: Vec<u8>,
}

impl<W: Write> Shown<W> {
    /// A screen that is gone stops nothing.
    fn show(&mut self, bytes: &[u8]) {
        match &self.screen {
            Screen::Dark => {}
            Screen::Plain => {
                let _ = self.stream.write_all(bytes).and_then(|()| self.stream.flush());
            }
            Screen::Labelled(_) => {
                self.pending.extend_from_slice(bytes);
                self.show_lines(false);
            }
        }
    }

    fn end(&mut self) {
        self.show_lines(true);
    }

    fn show_lines(&mut self, all: bool) {
        let Screen::Labelled(label) = &self.screen else { return };
        let whole = match self.pending.iter().rposition(|byte| *byte == b'\n') {
            Some(end) if !all => end + 1,
            None if !all && self.pending.len() < MAX_LINE => 0,
            _ => self.pending.len(),
        };
        let rest = self.pending.split_off(whole);
        let mut text = Vec::with_capacity(whole + 64);
        for line in self.pending.split(|byte| *byte == b'\n' || *byte == b'\r').filter(|line| !line.is_empty()) {
            text.extend_from_slice(format!("[{label}] ").as_bytes());
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        self.pending = rest;
        let _ = self.stream.write_all(&text).and_then(|()| self.stream.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_begins_anew_and_nothing_of_its_end_is_lost() {
        let folder = std::env::temp_dir().join(format!("tonnage-log-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut log = Log { most: 100, ..Log::create(&folder, "stderr.log").unwrap() };
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

    #[test]
    fn lines_are_labelled_whole() {
        let mut shown = Shown { screen: Screen::Labelled("n1".to_owned()), stream: Vec::new(), pending: Vec::new() };
        shown.show(b"one\ntw");
        shown.show(b"o\n\nthree");
        assert_eq!(shown.stream, b"[n1] one\n[n1] two\n");
        shown.end();
        assert_eq!(shown.stream, b"[n1] one\n[n1] two\n[n1] three\n");
    }
}
