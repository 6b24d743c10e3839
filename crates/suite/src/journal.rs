//! What happens to a suite, line by line, as JSON, in `journal.log`, and what that comes to. A torn line costs itself only; a line is on the
//! disk before anything is said of it.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tonnage_core::record::Outcome;
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
    /// Its configuration.
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
    pub fn note(&self, event: Event, state: &mut State) -> Result<(), RunError> {
        self.append(event.clone())?;
        state.take(event, now_ms());
        Ok(())
    }

    /// Adds a line and waits until it is on the disk.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&self, event: Event) -> Result<(), RunError> {
        let line = serde_json::to_string(&Line { at_ms: now_ms(), event });
        let line = line.map_err(|error| RunError::damaged(&self.path, error))?;
        let write = || {
            let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&self.path)?;
            // After a torn line, on a line of its own; in one write, so that no other's line stands within it.
            let start = if ends_torn(&mut file)? { "\n" } else { "" };
            file.write_all(format!("{start}{line}\n").as_bytes())?;
            file.sync_data()
        };
        write().map_err(|error| RunError::file(&self.path, error))
    }

    /// What all of it comes to.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn state(&self) -> Result<State, RunError> {
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
                Ok(line) => state.take(line.event, line.at_ms),
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
}

impl State {
    fn take(&mut self, event: Event, at_ms: u64) {
        match event {
            Event::Opened { pid, host } => (self.runner, self.host, self.paused) = (Some(pid), host, None),
            Event::Started { id, run, gpus, bytes } => {
                let host = self.host.clone();
                let started = RunState { run, host, gpus, bytes, started_ms: at_ms, end: None, is_retried: false };
                self.runs.insert(id, started);
            }
            Event::Ended { id, end } => {
                if let Some(total) = end.total_bytes {
                    self.peaks.entry((end.configuration.clone(), total)).or_default().note(&end);
                }
                if let Some(run) = self.runs.get_mut(&id) {
                    run.end = Some(end);
                }
            }
            Event::Retried { ids } => {
                for id in ids {
                    self.runs.entry(id).and_modify(|run| run.is_retried = true);
                }
            }
            Event::Paused { why } => self.paused = Some(why),
            Event::Unknown => {}
        }
    }

    /// What runs of this configuration, with this prediction, were measured to take.
    pub fn peaks(&self, configuration: &str, total_bytes: u64) -> Peaks {
        self.peaks.get(&(configuration.to_owned(), total_bytes)).cloned().unwrap_or_default()
    }

    /// What is to be done about a run.
    pub fn of(&self, id: &str) -> Where<'_> {
        let Some(run) = self.runs.get(id) else { return Where::Waiting(None) };
        match &run.end {
            None => Where::Started(run),
            Some(_) if run.is_retried => Where::Waiting(Some(run)),
            // Somebody asked for it to end; whoever runs the suite again wants it.
            Some(end) if end.outcome == Outcome::Stopped => Where::Waiting(Some(run)),
            Some(end) => Where::Ended(end),
        }
    }
}

/// Where a run of a plan is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Where<'a> {
    /// To be started; in the folder that it has already, where there is one.
    Waiting(Option<&'a RunState>),
    /// Started, and not known to have ended.
    Started(&'a RunState),
    /// Done, one way or another.
    Ended(&'a Ended),
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn started(id: &str) -> Event {
        Event::Started { id: id.to_owned(), run: format!("run-{id}"), gpus: vec!["0".to_owned()], bytes: 5 }
    }

    fn ended(id: &str, outcome: Outcome) -> Event {
        Event::Ended { id: id.to_owned(), end: Ended { outcome, ..Ended::default() } }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tonnage-journal-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn what_is_done_stays_done_and_what_is_retried_waits() {
        let folder = folder("state");
        let journal = Journal::new(&folder);
        let of = |id: &str| journal.state().unwrap().of(id) == Where::Waiting(None);
        assert!(of("a"));
        for event in [
            Event::Opened { pid: 7, host: "a".to_owned() },
            started("a"),
            started("b"),
            started("c"),
            ended("a", Outcome::Succeeded),
            ended("b", Outcome::Failed),
            ended("c", Outcome::Stopped),
        ] {
            journal.append(event).unwrap();
        }
        let state = journal.state().unwrap();
        assert!(matches!(state.of("a"), Where::Ended(end) if end.outcome == Outcome::Succeeded));
        assert!(matches!(state.of("b"), Where::Ended(_)));
        assert!(matches!(state.of("c"), Where::Waiting(Some(run)) if run.run == "run-c"));
        journal.append(Event::Retried { ids: vec!["b".to_owned()] }).unwrap();
        assert!(matches!(journal.state().unwrap().of("b"), Where::Waiting(Some(_))));
        journal.append(started("b")).unwrap();
        assert!(matches!(journal.state().unwrap().of("b"), Where::Started(_)));
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Power loss: cut anywhere, only the line that was cut is lost, and what is added later is whole.
    #[test]
    fn a_journal_cut_at_any_byte_loses_one_line() {
        let folder = folder("cut");
        let journal = Journal::new(&folder);
        journal.append(started("a")).unwrap();
        journal.append(ended("a", Outcome::Succeeded)).unwrap();
        let whole = fs::read(folder.join("journal.log")).unwrap();
        journal.append(started("b")).unwrap();
        let longer = fs::read(folder.join("journal.log")).unwrap();
        for cut in whole.len()..longer.len() {
            fs::write(folder.join("journal.log"), &longer[..cut]).unwrap();
            journal.append(started("c")).unwrap();
            let state = journal.state().unwrap();
            assert!(matches!(state.of("a"), Where::Ended(_)), "cut at {cut}");
            assert!(matches!(state.of("c"), Where::Started(_)), "cut at {cut}");
            assert_eq!(state.unreadable, usize::from(cut > whole.len() && cut < longer.len() - 1), "cut at {cut}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
