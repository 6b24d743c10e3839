//! What a command writes: into its logs whole, onto the screen labelled, and read on the way for progress.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tonnage_core::progress::{Lines, Progress, Tracker};

use crate::log::{Log, LogTail};

/// What is read at once.
const CHUNK: usize = 64 << 10;
/// A line without an end is shown from this length on.
const MAX_LINE: usize = 8 << 10;

/// Where lines are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Screen {
    #[default]
    Dark,
    /// As they come.
    Plain,
    /// Line by line, each with a label.
    Labelled(String),
}

/// What is known of a command's output so far.
#[derive(Debug)]
struct Following {
    /// When it began; times are milliseconds since then, which no clock sets back.
    began: Instant,
    last_ms: AtomicU64,
    tracker: Mutex<Tracker>,
}

/// A command's output.
#[derive(Debug)]
pub struct Output {
    folder: PathBuf,
    following: Arc<Following>,
    readers: Vec<JoinHandle<()>>,
}

impl Output {
    /// Reads both pipes to their end, each in a thread.
    pub(super) fn follow_pipes(
        (stdout, stderr): (Option<ChildStdout>, Option<ChildStderr>),
        folder: &Path,
        screen: Screen,
    ) -> Self {
        let following = Arc::new(Following { began: Instant::now(), last_ms: 0.into(), tracker: Mutex::default() });
        let mut readers = Vec::new();
        if let Some(pipe) = stdout {
            readers.push(read_pipe(pipe, Log::create(folder, "stdout.log"), std::io::stdout(), &screen, &following));
        }
        if let Some(pipe) = stderr {
            readers.push(read_pipe(pipe, Log::create(folder, "stderr.log"), std::io::stderr(), &screen, &following));
        }
        Self { folder: folder.to_owned(), following, readers }
    }

    /// For how long nothing was written.
    pub fn silent_for(&self) -> Duration {
        let last = Duration::from_millis(self.following.last_ms.load(Ordering::Relaxed));
        self.following.began.elapsed().saturating_sub(last)
    }

    /// Where the training is, by its lines.
    pub fn progress(&self) -> Option<Progress> {
        self.following.tracker().progress()
    }

    /// Steps that its lines showed one after the other.
    pub fn steps_made(&self) -> Option<u64> {
        self.following.tracker().steps_made()
    }

    /// Whether somebody may still write into a pipe.
    pub(super) fn is_open(&self) -> bool {
        self.readers.iter().any(|reader| !reader.is_finished())
    }

    /// Waits until both pipes are closed.
    pub(super) fn finish_reading(&mut self) {
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

impl Following {
    fn tracker(&self) -> std::sync::MutexGuard<'_, Tracker> {
        self.tracker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Lines are read when they are whole: a writer without a buffer says one in pieces.
    fn read_lines(&self, lines: &mut Lines, bytes: &[u8]) {
        let at_ms = self.now_ms();
        self.last_ms.store(at_ms, Ordering::Relaxed);
        let mut tracker = self.tracker();
        lines.feed(bytes, |line| tracker.read_line(line, at_ms));
    }
}

fn read_pipe(
    mut pipe: impl Read + Send + 'static,
    mut log: Log,
    stream: impl Write + Send + 'static,
    screen: &Screen,
    following: &Arc<Following>,
) -> JoinHandle<()> {
    let mut shown = Shown { screen: screen.clone(), stream, pending: Vec::new() };
    let following = Arc::clone(following);
    thread::spawn(move || {
        let (mut chunk, mut lines) = (vec![0; CHUNK], Lines::default());
        loop {
            match pipe.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => {
                    let bytes = &chunk[..count];
                    log.write(bytes);
                    shown.show_bytes(bytes);
                    following.read_lines(&mut lines, bytes);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        shown.end_line();
        following.tracker().read_rest(&lines.rest(), following.now_ms(), true);
    })
}

struct Shown<W> {
    screen: Screen,
    stream: W,
    pending: Vec<u8>,
}

impl<W: Write> Shown<W> {
    /// A screen that is gone stops nothing.
    fn show_bytes(&mut self, bytes: &[u8]) {
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

    fn end_line(&mut self) {
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
    use std::fs;

    use super::*;

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
            let following = Arc::new(Following { began: Instant::now(), last_ms: 0.into(), tracker: Mutex::default() });
            let log = Log::create(&folder, "stdout.log");
            read_pipe(Pieces(text.to_vec(), size), log, std::io::sink(), &Screen::Dark, &following).join().unwrap();
            let found = following.tracker().progress().map(|now| (now.step, now.total));
            assert_eq!(found, Some((124, Some(500))), "{size} bytes at a time");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn lines_are_labelled_whole() {
        let mut shown = Shown { screen: Screen::Labelled("n1".to_owned()), stream: Vec::new(), pending: Vec::new() };
        shown.show_bytes(b"one\ntw");
        shown.show_bytes(b"o\n\nthree");
        assert_eq!(shown.stream, b"[n1] one\n[n1] two\n");
        shown.end_line();
        assert_eq!(shown.stream, b"[n1] one\n[n1] two\n[n1] three\n");
    }
}
