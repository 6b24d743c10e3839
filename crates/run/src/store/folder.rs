//! [`RunFolder`]: one run's folder. `run.json` is written once; `events.jsonl` and `samples.jsonl` are appended to;
//! `lock` is held by the supervisor for as long as it lives, so that who is alive is asked of the kernel, not of a file.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use tonnage_core::limit::{JOURNAL_BYTES, JSON_BYTES};
use tonnage_core::progress::Progress;
use tonnage_core::record::{
    AttemptState, Entry, Event, Journal, RunRecord, RunState, Sample, read_journal, write_entry,
};

use super::file::{create_private_folder, write_atomically};
use crate::RunError;
use crate::bounded::{read_ends, read_text};
use crate::clock::now_ms;
use crate::launch::{Identity, processes_of, stopped_holders, wake};
use crate::log::latest_progress;

/// How long a copy of a supervisor that is woken takes at most to become another program.
const COPY_TIMEOUT: Duration = Duration::from_millis(200);
/// How often it is asked whether it has.
const COPY_POLL: Duration = Duration::from_millis(5);

/// One run's folder.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
    run: RunRecord,
}

/// Held by the supervisor of a run.
pub struct Lock {
    _held: Flock<File>,
}

impl RunFolder {
    pub(super) fn create(path: PathBuf, run: &RunRecord) -> Result<Self, RunError> {
        let mode = if run.policy.shared { 0o755 } else { 0o700 };
        fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(|error| RunError::file(&path, error))?;
        let text = serde_json::to_vec_pretty(run).map_err(|error| RunError::damaged(&path, error))?;
        write_atomically(&path.join("run.json"), &text)?;
        Ok(Self { path, run: run.clone() })
    }

    /// Reads the record in `path`.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(path: PathBuf) -> Result<Self, RunError> {
        let file = path.join("run.json");
        let text = read_text(&file, JSON_BYTES).map_err(|error| RunError::file(&file, error))?;
        let run = serde_json::from_str(&text).map_err(|error| RunError::damaged(&file, error))?;
        Ok(Self { path, run })
    }

    pub fn id(&self) -> &str {
        &self.run.id
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was asked for.
    pub const fn run(&self) -> &RunRecord {
        &self.run
    }

    /// Adds what happened to the journal.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&self, event: Event) -> Result<(), RunError> {
        self.append_entries(&write_entry(&Entry { at_ms: now_ms(), event }))
    }

    /// Adds whole lines of a journal to it.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn append_entries(&self, lines: &str) -> Result<(), RunError> {
        self.append_line("events.jsonl", lines)
    }

    /// Adds a sample.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn sample(&self, sample: &Sample) -> Result<(), RunError> {
        let line = serde_json::to_string(sample).map_err(|error| RunError::damaged(&self.path, error))?;
        self.append_line("samples.jsonl", &(line + "\n"))
    }

    /// One write of a whole line; after a torn one, on a line of its own.
    fn append_line(&self, name: &str, line: &str) -> Result<(), RunError> {
        let path = self.path.join(name);
        let append = || {
            let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&path)?;
            let torn = ends_torn(&mut file)?;
            let line = if torn { format!("\n{line}") } else { line.to_owned() };
            file.write_all(line.as_bytes())
        };
        append().map_err(|error: std::io::Error| RunError::file(&path, error))
    }

    /// Everything that happened; of a very long journal how it began and how it ended.
    pub fn journal(&self) -> Journal {
        let (bytes, left_out) = read_ends(self.path.join("events.jsonl"), JOURNAL_BYTES).unwrap_or_default();
        let mut journal = read_journal(&String::from_utf8_lossy(&bytes));
        journal.unreadable += usize::from(left_out > 0);
        journal
    }

    /// What it came to.
    pub fn state(&self) -> RunState {
        RunState::of_journal(&self.run, &self.journal().entries)
    }

    /// The same, with the progress that the logs of running attempts say now.
    pub fn state_now(&self) -> RunState {
        let mut state = self.state();
        for (index, node) in state.nodes.iter_mut().enumerate() {
            let running = node.attempts.last().filter(|attempt| attempt.exit.is_none());
            let logs = running.map(|attempt| self.attempt_path(index, attempt.record.number));
            let Some((now, at_ms)) = logs.and_then(|logs| latest_progress(&logs)) else { continue };
            // The end of a log may hold only what is counted inside a step of the training.
            let same = |before: Progress| before.unit == now.unit && (before.total == now.total || now.total.is_none());
            if node.progress_since.is_none() || node.progress.is_none_or(same) {
                node.goes_on(now, at_ms);
                state.last_ms = state.last_ms.max(at_ms);
            }
        }
        state
    }

    /// Takes the run for this process; `None` while another has it.
    ///
    /// # Errors
    /// When the lock file cannot be opened.
    pub fn lock(&self) -> Result<Option<Lock>, RunError> {
        let mut held = self.try_lock()?;
        if held.is_none() && self.wake_copies() {
            let until = Instant::now() + COPY_TIMEOUT;
            while held.is_none() && Instant::now() < until {
                std::thread::sleep(COPY_POLL);
                held = self.try_lock()?;
            }
        }
        Ok(held)
    }

    /// A supervisor starts a process as a copy of itself, which has the lock too until it is the program. Whether one is woken that
    /// was stopped before: if its supervisor is dead, nobody else wakes it, and the run would seem to live. A supervisor that is stopped
    /// stays so.
    fn wake_copies(&self) -> bool {
        let stopped = stopped_holders(&self.path.join("lock"));
        if stopped.is_empty() {
            return false;
        }
        let supervisor = self.state().supervisor.map(u32::cast_signed);
        let copies = stopped.into_iter().filter(|pid| Some(*pid) != supervisor);
        copies.map(wake).count() > 0
    }

    fn try_lock(&self) -> Result<Option<Lock>, RunError> {
        let path = self.path.join("lock");
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = opened.map_err(|error| RunError::file(&path, error))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => Ok(Some(Lock { _held: held })),
            Err((_, nix::Error::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(RunError::file(&path, error.into())),
        }
    }

    /// Whether a supervisor has it now.
    pub fn is_supervised(&self) -> bool {
        matches!(self.lock(), Ok(None))
    }

    /// Processes of its attempts that live although nobody supervises it.
    pub fn left_behind(&self) -> Vec<Identity> {
        if self.is_supervised() { Vec::new() } else { processes_of(&self.path, &self.recorded()) }
    }

    /// The processes of attempts that have no end in the journal.
    pub fn recorded(&self) -> Vec<Identity> {
        let state = self.state();
        let open = state.nodes.iter().flat_map(|node| node.attempts.last()).filter(|last| last.exit.is_none());
        let process = |attempt: &AttemptState| Some(Identity { pid: attempt.pid?.cast_signed(), began: attempt.began });
        open.filter_map(process).collect()
    }

    /// Removes all that is recorded of it.
    ///
    /// # Errors
    /// When it lives, or cannot be removed.
    pub fn remove(self) -> Result<(), RunError> {
        let lock = self.lock()?.ok_or_else(|| RunError::Supervised(self.id().to_owned()))?;
        fs::remove_dir_all(&self.path).map_err(|error| RunError::file(&self.path, error))?;
        drop(lock);
        Ok(())
    }

    /// The folder of an attempt's logs, made.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn attempt(&self, node: usize, number: u32) -> Result<PathBuf, RunError> {
        let path = self.attempt_path(node, number);
        create_private_folder(&path)?;
        Ok(path)
    }

    /// The folder of an attempt's logs.
    pub fn attempt_path(&self, node: usize, number: u32) -> PathBuf {
        let name = self.run.nodes.get(node).map_or("", |node| node.name.as_str());
        let node = if name.is_empty() { self.path.clone() } else { self.path.join(name) };
        node.join(format!("attempt-{number}"))
    }
}

/// Whether a file's last line has no end.
fn ends_torn(file: &mut File) -> std::io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::process::Command;

    use super::*;
    use crate::store::Store;

    fn store(name: &str) -> Store {
        let root = std::env::temp_dir().join(format!("tonnage-store-{name}-{}", std::process::id()));
        // What an earlier test left.
        let _ = fs::remove_dir_all(&root);
        Store::new(root)
    }

    #[test]
    fn a_run_is_found_and_read_again() {
        let store = store("found");
        let made: Vec<_> = (0..12).map(|_| store.create(RunRecord::default()).unwrap()).collect();
        let names: Vec<_> = store.list().iter().map(|run| run.id().to_owned()).collect();
        assert_eq!(names, made.iter().map(|run| run.id().to_owned()).collect::<Vec<_>>());
        assert_eq!(store.find("last").unwrap().id(), made[11].id());
        assert!(store.find("nothing").is_err());
        let mode = fs::metadata(made[0].path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::remove_dir_all(store.root()).unwrap();
    }

    #[test]
    fn a_torn_line_costs_itself_only() {
        let store = store("torn");
        let run = store.create(RunRecord::default()).unwrap();
        run.append(Event::Supervised { pid: 1 }).unwrap();
        let path = run.path().join("events.jsonl");
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"v\":1,\"ev").unwrap();
        run.append(Event::Supervised { pid: 2 }).unwrap();
        let journal = run.journal();
        assert_eq!((journal.entries.len(), journal.unreadable), (2, 1));
        assert_eq!(run.state().supervisor, Some(2));
        fs::remove_dir_all(store.root()).unwrap();
    }

    #[test]
    fn one_supervisor_at_a_time() {
        let store = store("lock");
        let run = store.create(RunRecord::default()).unwrap();
        assert!(!run.is_supervised());
        let held = run.lock().unwrap();
        assert!(held.is_some() && run.is_supervised());
        drop(held);
        assert!(!run.is_supervised());
        fs::remove_dir_all(store.root()).unwrap();
    }

    #[test]
    fn a_copy_of_a_supervisor_that_is_stopped_holds_no_run() {
        let store = store("copy");
        let run = store.create(RunRecord::default()).unwrap();
        let path = run.path().join("lock");
        let file = File::create(&path).unwrap();
        // `Flock` would give it back at its end, which no supervisor does that is killed.
        #[expect(deprecated)]
        nix::fcntl::flock(file.as_raw_fd(), FlockArg::LockExclusive).unwrap();
        let mut copy = Command::new("sh").args(["-c", "kill -STOP $$; exit 7"]).stdin(file).spawn().unwrap();
        while stopped_holders(&path).is_empty() {
            assert!(copy.try_wait().unwrap().is_none(), "it is not stopped");
            std::thread::sleep(COPY_POLL);
        }
        run.append(Event::Supervised { pid: copy.id() }).unwrap();
        assert!(run.is_supervised(), "a supervisor that is stopped is one");
        assert_eq!(stopped_holders(&path), [copy.id().cast_signed()]);
        run.append(Event::Supervised { pid: std::process::id() }).unwrap();
        assert!(!run.is_supervised());
        assert_eq!(copy.wait().unwrap().code(), Some(7));
        fs::remove_dir_all(store.root()).unwrap();
    }
}
