//! What happens to a suite, line by line, as JSON, in `journal.log`, and what that comes to. A torn line costs itself only; a line is on the
//! disk before anything is said of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tonnage_core::record::{FailureClass, Outcome};
use tonnage_run::RunError;
use tonnage_run::clock::now_ms;

use crate::peaks::Peaks;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A runner took the suite.
    Opened {
        pid: u32,
        /// The machine that it is of.
        #[serde(default)]
        host: String,
    },
    /// A run was given a folder, and may be started.
    Started {
        id: String,
        /// The run's folder, by its name.
        run: String,
        /// The GPUs that it was put on.
        gpus: Vec<String>,
        /// Bytes that it is promised on each.
        bytes: u64,
    },
    /// A run ended.
    Ended { id: String, end: Ended },
    /// Runs are to be run again.
    Retried { ids: Vec<String> },
    /// Runs are about to be sent to SLURM; written down first, so that whoever dies in between finds them by the batch's name.
    Submitting {
        /// The batch's name, which its jobs bear.
        batch: String,
        /// Which link of its chain, from 1.
        link: u32,
        /// GPUs of a run.
        gpus: u64,
        /// Patterns of the output that are metrics.
        metrics: Vec<String>,
        /// The runs' identities, by their place in the array; of the first link.
        ids: Vec<String>,
    },
    /// SLURM took them.
    Submitted {
        /// The batch's name.
        batch: String,
        link: u32,
        /// The number that SLURM gave it.
        job: u64,
    },
    /// SLURM did not take them, or has nothing of them.
    Unsubmitted {
        /// The batch's name.
        batch: String,
        link: u32,
        why: String,
    },
    /// Nothing more is started, until somebody runs the suite again.
    Paused {
        /// One sentence, shown by `suite status`.
        why: String,
    },
    /// Of a newer version.
    #[serde(other)]
    Unknown,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ended {
    /// In a word.
    pub outcome: Outcome,
    /// One sentence; empty after a success.
    pub reason: String,
    /// The class of the last failure (docs/failures.md).
    pub class: Option<String>,
    /// Whether it failed in its first minute, before any step.
    pub at_start: bool,
    /// Seconds from start to end.
    pub seconds: f64,
    /// Of these, seconds of attempts that failed.
    pub lost_seconds: f64,
    /// Starts of the command.
    pub attempts: u32,
    /// Peak of reserved bytes that its allocator reported.
    pub measured_bytes: Option<u64>,
    /// What that peak was predicted to be.
    pub predicted_bytes: Option<u64>,
    /// Processes of it on a GPU, each with such a peak.
    pub processes: u64,
    /// Whether it succeeded with the batch that it was planned with, so that its peak is that of the whole run.
    pub is_whole: bool,
    pub configuration: String,
    /// What was predicted of it on a GPU when it was started; tells a configuration from another that had its name.
    pub total_bytes: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    at_ms: u64,
    #[serde(flatten)]
    event: Event,
}

/// A suite's journal.
#[derive(Clone, Debug)]
pub struct Journal {
    path: PathBuf,
}

impl Journal {
    /// In the suite's folder.
    pub fn new(folder: &Path) -> Self {
        Self { path: folder.join("journal.log") }
    }

    /// Adds a line, waits until it is on the disk, and takes it into `state`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note_event(&self, event: Event, state: &mut State) -> Result<(), RunError> {
        self.append_event(event.clone())?;
        state.take_event(event, now_ms());
        Ok(())
    }

    /// Adds a line and waits until it is on the disk.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append_event(&self, event: Event) -> Result<(), RunError> {
        self.append_all(vec![event])
    }

    /// Adds a line for each of `events` and waits once until all are on the disk.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn append_all(&self, events: Vec<Event>) -> Result<(), RunError> {
        if events.is_empty() {
            return Ok(());
        }
        let at_ms = now_ms();
        let mut lines = String::new();
        for event in events {
            let line = serde_json::to_string(&Line { at_ms, event });
            lines.push_str(&line.map_err(|error| RunError::damaged(&self.path, error))?);
            lines.push('\n');
        }
        let write = || {
            let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&self.path)?;
            // After a torn line, on a line of its own; in one write, so that no other's line stands within it.
            let start = if ends_torn(&mut file)? { "\n" } else { "" };
            file.write_all(format!("{start}{lines}").as_bytes())?;
            file.sync_data()
        };
        write().map_err(|error| RunError::file(&self.path, error))
    }

    /// What all of it comes to.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_state(&self) -> Result<State, RunError> {
        let mut text = Vec::new();
        match File::open(&self.path).and_then(|mut file| file.read_to_end(&mut text)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(RunError::file(&self.path, error));
            }
            _ => {}
        }
        let mut state = State::default();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice::<Line>(line) {
                Ok(line) => state.take_event(line.event, line.at_ms),
                Err(_) => state.unreadable += 1,
            }
        }
        Ok(state)
    }
}

fn ends_torn(file: &mut File) -> std::io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// What a journal comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Runs that were started, by identity.
    pub runs: HashMap<String, RunState>,
    /// What was sent to SLURM, by name.
    pub batches: BTreeMap<String, Batch>,
    /// Why nothing more is started.
    pub paused: Option<String>,
    /// The runner that took the suite last.
    pub runner: Option<u32>,
    /// Its machine; empty where a journal does not say.
    pub host: String,
    /// What runs were measured to take, by configuration and by what was predicted of it.
    pub peaks: HashMap<(String, u64), Peaks>,
    /// Lines that could not be read.
    pub unreadable: usize,
}

/// Where a run is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunState {
    /// Its folder's name.
    pub run: String,
    /// The machine that it was started on; empty where a journal does not say.
    pub host: String,
    /// What `CUDA_VISIBLE_DEVICES` of the run names.
    pub gpus: Vec<String>,
    /// Bytes that it is promised on each.
    pub bytes: u64,
    /// When it was started last, in milliseconds since 1970.
    pub started_ms: u64,
    /// How it ended; `None` while it may run.
    pub end: Option<Ended>,
    /// Whether it is to be run again.
    pub is_retried: bool,
    /// The batch that it was sent to SLURM with; `None` where it was started here.
    pub batch: Option<String>,
    /// What it was before it was sent to SLURM with that batch.
    pub before: Option<Box<Self>>,
    /// How often in a row SLURM has not started its command.
    pub refusals: u32,
}

/// What was sent to SLURM at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Its runs, by their place in the array.
    pub ids: Vec<String>,
    /// GPUs of a run.
    pub gpus: u64,
    /// Patterns of the output that are metrics.
    pub metrics: Vec<String>,
    /// The jobs that follow one another.
    pub links: Vec<Link>,
}

/// A job of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number; `None` where nobody heard it.
    pub job: Option<u64>,
    /// Which link of the chain, from 1.
    pub number: u32,
    /// When it was sent, in milliseconds since 1970.
    pub sent_ms: u64,
}

impl State {
    fn take_event(&mut self, event: Event, at_ms: u64) {
        match event {
            Event::Opened { pid, host } => (self.runner, self.host, self.paused) = (Some(pid), host, None),
            Event::Started { id, run, gpus, bytes } => {
                let host = self.host.clone();
                let started = RunState { run, host, gpus, bytes, started_ms: at_ms, ..RunState::default() };
                self.runs.insert(id, started);
            }
            Event::Ended { id, end } => {
                if let Some(total) = end.total_bytes {
                    self.peaks.entry((end.configuration.clone(), total)).or_default().note_end(&end);
                }
                if let Some(run) = self.runs.get_mut(&id) {
                    run.refusals = if is_refusal(&end) { run.refusals + 1 } else { 0 };
                    run.end = Some(end);
                }
            }
            Event::Retried { ids } => {
                for id in ids {
                    self.runs.entry(id).and_modify(|run| run.is_retried = true);
                }
            }
            Event::Submitting { batch, link, gpus, metrics, ids } => {
                ids.iter().for_each(|id| self.note_sending(id, &batch, at_ms));
                let known = self.batches.entry(batch).or_insert(Batch { ids, gpus, metrics, links: Vec::new() });
                known.links.push(Link { job: None, number: link, sent_ms: at_ms });
            }
            Event::Submitted { batch, link, job } => {
                let links = self.batches.get_mut(&batch).into_iter().flat_map(|batch| &mut batch.links);
                links.filter(|one| one.number == link).for_each(|one| one.job = Some(job));
            }
            Event::Unsubmitted { batch, link, why } => self.note_unsubmitted(&batch, link, &why),
            Event::Paused { why } => self.paused = Some(why),
            Event::Unknown => {}
        }
    }

    /// What runs of this configuration, with this prediction, were measured to take.
    pub fn peaks(&self, configuration: &str, total_bytes: u64) -> Peaks {
        self.peaks.get(&(configuration.to_owned(), total_bytes)).cloned().unwrap_or_default()
    }

    /// A run that is about to be sent with `batch`.
    fn note_sending(&mut self, id: &str, batch: &str, at_ms: u64) {
        let known = self.runs.remove(id).map(Self::known_alone);
        // Whoever sends again what has failed begins to count anew.
        let is_missing = |known: &&RunState| known.end.as_ref().is_none_or(|end| end.outcome == Outcome::Stopped);
        let refusals = known.as_ref().filter(is_missing).map_or(0, |known| known.refusals);
        let (batch, before) = (Some(batch.to_owned()), known.map(Box::new));
        let sent = RunState { batch, before, refusals, started_ms: at_ms, ..RunState::default() };
        self.runs.insert(id.to_owned(), sent);
    }

    /// Without what it was before: one step back is enough.
    fn known_alone(known: RunState) -> RunState {
        RunState { before: None, ..known }
    }

    /// A link that is not there; without the first one the runs are what they were before.
    fn note_unsubmitted(&mut self, batch: &str, link: u32, why: &str) {
        if let Some(known) = self.batches.get_mut(batch) {
            known.links.retain(|one| one.number != link);
        }
        let sent_with = |run: &&mut RunState| run.batch.as_deref() == Some(batch) && run.end.is_none();
        for run in self.runs.values_mut().filter(sent_with).filter(|_| link <= 1) {
            match run.before.take() {
                Some(before) => *run = *before,
                None => run.end = Some(Ended { outcome: Outcome::Stopped, reason: why.to_owned(), ..Ended::default() }),
            }
        }
    }

    /// What is to be done about a run, where those of `retried` are to be run again if they failed.
    pub fn of_retried(&self, id: &str, retried: &HashSet<&str>) -> Where<'_> {
        match self.where_is(id) {
            Where::Ended(end) if end.outcome != Outcome::Succeeded && retried.contains(id) => {
                Where::Waiting(self.runs.get(id))
            }
            found => found,
        }
    }

    /// What is to be done about a run.
    pub fn where_is(&self, id: &str) -> Where<'_> {
        let Some(run) = self.runs.get(id) else { return Where::Waiting(None) };
        match &run.end {
            None if run.batch.is_some() => Where::Submitted(run),
            None => Where::Started(run),
            Some(_) if run.is_retried => Where::Waiting(Some(run)),
            // Somebody asked for it to end; whoever runs the suite again wants it.
            Some(end) if end.outcome == Outcome::Stopped => Where::Waiting(Some(run)),
            Some(end) => Where::Ended(end),
        }
    }
}

/// Whether SLURM did not start the command.
fn is_refusal(end: &Ended) -> bool {
    end.outcome == Outcome::Stopped && end.class.as_deref() == Some(FailureClass::NotStarted.name())
}

/// Where a run of a plan is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Where<'a> {
    /// To be started; in the folder that it has already, where there is one.
    Waiting(Option<&'a RunState>),
    /// Started, and not known to have ended.
    Started(&'a RunState),
    /// Sent to SLURM, and not known to have ended.
    Submitted(&'a RunState),
    /// Done, one way or another.
    Ended(&'a Ended),
}

#[cfg(test)]
mod tests;
