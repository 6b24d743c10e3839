//! What a command writes: into its logs whole, onto the screen labelled, and read on the way for progress.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tonnage_core::progress::{Lines, Progress, Tracker};

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
#[derive(Debug)]
struct Heard {
    /// When it began; times are milliseconds since then, which no clock sets back.
    began: Instant,
    last_ms: AtomicU64,
    tracker: Mutex<Tracker>,
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
    ) -> Self {
        let heard = Arc::new(Heard { began: Instant::now(), last_ms: 0.into(), tracker: Mutex::default() });
        let mut readers = Vec::new();
        if let Some(pipe) = stdout {
            readers.push(reader(pipe, Log::create(folder, "stdout.log"), std::io::stdout(), &screen, &heard));
        }
        if let Some(pipe) = stderr {
            readers.push(reader(pipe, Log::create(folder, "stderr.log"), std::io::stderr(), &screen, &heard));
        }
        Self { folder: folder.to_owned(), heard, readers }
    }

    /// For how long nothing was written.
    pub fn silent(&self) -> Duration {
        let last = Duration::from_millis(self.heard.last_ms.load(Ordering::Relaxed));
        self.heard.began.elapsed().saturating_sub(last)
    }

    /// Where the training is, by its lines.
    pub fn progress(&self) -> Option<Progress> {
        self.heard.tracker().progress()
    }

    /// Steps that its lines showed one after the other.
    pub fn steps_made(&self) -> Option<u64> {
        self.heard.tracker().steps_made()
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
    /// `None` where it cannot be written.
    file: Option<File>,
    bytes: u64,
    most: u64,
}

impl Log {
    fn create(folder: &Path, name: &str) -> Self {
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
    fn write(&mut self, bytes: &[u8]) {
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

impl Heard {
    fn tracker(&self) -> std::sync::MutexGuard<'_, Tracker> {
        self.tracker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Lines are read when they are whole: a writer without a buffer says one in pieces.
    fn listen(&self, lines: &mut Lines, bytes: &[u8]) {
        let at_ms = self.now_ms();
        self.last_ms.store(at_ms, Ordering::Relaxed);
        let mut tracker = self.tracker();
        lines.feed(bytes, |line| tracker.read(line, at_ms));
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
        let (mut chunk, mut lines) = (vec![0; CHUNK], Lines::default());
        loop {
            match pipe.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => {
                    let bytes = &chunk[..count];
                    log.write(bytes);
                    shown.show(bytes);
                    heard.listen(&mut lines, bytes);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        shown.end();
        heard.tracker().read_rest(&lines.rest(), heard.now_ms(), true);
    })
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

    /// Gives so many bytes at a read.
    struct Pieces(Vec<u8>, usize);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(self.0.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0.drain(..count);
            Ok(count)
        }
    }

    #[test]
    fn progress_does_not_depend_on_how_lines_are_cut() {
        let folder = std::env::temp_dir().join(format!("tonnage-pieces-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let text = b"step 1/500\nstep 123/500 loss 1\r\nstep 124/500";
        for size in 1..=text.len() {
            let heard = Arc::new(Heard { began: Instant::now(), last_ms: 0.into(), tracker: Mutex::default() });
            let log = Log::create(&folder, "stdout.log");
            reader(Pieces(text.to_vec(), size), log, std::io::sink(), &Screen::Dark, &heard).join().unwrap();
            let found = heard.tracker().progress().map(|now| (now.step, now.total));
            assert_eq!(found, Some((124, Some(500))), "{size} bytes at a time");
        }
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
