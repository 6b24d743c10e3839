//! [`Watcher`]: one step after the other: a sample, the board, the files, those who want to be told.

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::board::Board;
use crate::conditions::observe_sample;
use crate::notify::Notify;
use crate::nvml::NvmlSampler;
use crate::record::{Recorder, Recording, Store};
use crate::sample::{Sample, Sampler};
use crate::suites::LookAtSuites;

/// Between two looks at suites.
const SUITE_SECONDS: Duration = Duration::from_secs(2);

/// Where samples come from, and when.
pub enum Source {
    /// The driver, so often.
    Live(Box<NvmlSampler>, Duration),
    /// A recording, so many times as fast as it was; 0 is as fast as can be.
    Replay(Box<Recording>, f64),
}

pub struct Watcher {
    source: Source,
    board: Arc<Mutex<Board>>,
    /// A file that gets every sample.
    pub recorder: Option<Recorder<BufWriter<File>>>,
    /// A folder that gets the history.
    store: Option<Store>,
    /// Who is told of alerts.
    pub notify: Notify,
    /// Who tells of suites; nobody where a recording is played.
    pub suites: Option<LookAtSuites>,
    looked: Option<Instant>,
    next: Instant,
    last: Option<f64>,
}

/// The board behind its lock, also when another thread died with it.
pub fn lock_board(board: &Mutex<Board>) -> MutexGuard<'_, Board> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watcher {
    /// One that fills `board`.
    pub fn new(source: Source, board: Board) -> Self {
        let board = Arc::new(Mutex::new(board));
        let notify = Notify::default();
        Self {
            source,
            board,
            recorder: None,
            store: None,
            notify,
            suites: None,
            looked: None,
            next: Instant::now(),
            last: None,
        }
    }

    /// The board that it fills.
    pub fn board(&self) -> Arc<Mutex<Board>> {
        Arc::clone(&self.board)
    }

    /// Keeps a history in `store`, and takes over what it held.
    pub fn begin_with(&mut self, store: Store, samples: Vec<Sample>) {
        self.store = Some(store);
        let mut board = lock_board(&self.board);
        samples.into_iter().for_each(|sample| board.remember_earlier(sample));
    }

    /// Takes a sample; false when there are no more.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn step(&mut self) -> io::Result<bool> {
        let Some(sample) = self.source.sample() else { return Ok(false) };
        self.last = Some(sample.time);
        self.keep_sample(&sample)?;
        self.look_at_suites();
        let raised = observe_sample(&mut lock_board(&self.board), sample);
        raised.iter().for_each(|alert| self.notify.tell_alert(alert));
        Ok(true)
    }

    /// Suites change slowly, and their journals cost something to read.
    fn look_at_suites(&mut self) {
        let is_due = self.looked.is_none_or(|at| at.elapsed() >= SUITE_SECONDS);
        if let Some(look) = self.suites.as_mut().filter(|_| is_due) {
            self.looked = Some(Instant::now());
            let suites = look();
            lock_board(&self.board).suites = suites;
        }
    }

    fn keep_sample(&mut self, sample: &Sample) -> io::Result<()> {
        if let Some(recorder) = &mut self.recorder {
            recorder.write(sample)?;
        }
        self.store.as_mut().map_or(Ok(()), |store| store.keep(sample))
    }

    /// How long to wait for the next sample; `None` when there is none.
    pub fn wait(&mut self) -> Option<Duration> {
        match &self.source {
            Source::Live(_, interval) => {
                // A step that took longer than the interval is not made up for.
                let now = Instant::now();
                self.next = (self.next + *interval).max(now);
                Some(self.next - now)
            }
            Source::Replay(recording, speed) => {
                let apart = recording.next_time()? - self.last.unwrap_or(f64::NEG_INFINITY);
                let seconds = if *speed > 0.0 && apart.is_finite() { (apart / speed).clamp(0.0, 3600.0) } else { 0.0 };
                Some(Duration::from_secs_f64(seconds))
            }
        }
    }
}

impl Source {
    fn sample(&mut self) -> Option<Sample> {
        match self {
            Self::Live(sampler, _) => sampler.sample(),
            Self::Replay(recording, _) => recording.sample(),
        }
    }
}
