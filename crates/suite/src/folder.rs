//! [`SuiteFolder`]: where a suite is kept: `plan.json`, replaced as a whole; `journal.log`, appended to; `runs/IDENTITY` with the
//! records of each run; `lock`, held by the runner for as long as it lives.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tonnage_core::small_sort::SmallSort;

use nix::fcntl::{Flock, FlockArg};
use tonnage_run::RunError;
use tonnage_run::store::{create_private_folder, write_atomically};

use crate::journal::Journal;
use crate::plan::Plan;

/// How long a look at the lock by another command may keep a runner from it.
const LOOKS: Duration = Duration::from_secs(1);

/// This machine's name.
pub fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// A suite's folder.
#[derive(Clone, Debug)]
pub struct SuiteFolder {
    /// Where it is.
    pub path: PathBuf,
    pub journal: Journal,
}

/// Held by the runner of a suite.
pub struct Lock {
    _held: Flock<File>,
}

impl SuiteFolder {
    /// Of the suite `name` below `root`; it need not be there.
    pub fn new(root: &Path, name: &str) -> Self {
        let path = root.join("suites").join(name);
        Self { journal: Journal::new(&path), path }
    }

    /// Makes it, and keeps `plan` in it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_plan(&self, plan: &Plan) -> Result<(), RunError> {
        create_private_folder(&self.path.join("runs"))?;
        let path = self.path.join("plan.json");
        let text = serde_json::to_vec(plan).map_err(|error| RunError::damaged(&path, error))?;
        write_atomically(&path, &text)
    }

    /// The plan that was kept.
    ///
    /// # Errors
    /// When there is none.
    pub fn read_plan(&self) -> Result<Plan, RunError> {
        let path = self.path.join("plan.json");
        let text = fs::read(&path).map_err(|error| RunError::file(&path, error))?;
        serde_json::from_slice(&text).map_err(|error| RunError::damaged(&path, error))
    }

    /// Takes the suite for this process; `None` while another has it.
    ///
    /// # Errors
    /// When the lock file cannot be opened.
    pub fn lock_folder(&self) -> Result<Option<Lock>, RunError> {
        create_private_folder(&self.path)?;
        let until = Instant::now() + LOOKS;
        loop {
            match self.try_lock()? {
                None if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
                held => return Ok(held),
            }
        }
    }

    fn try_lock(&self) -> Result<Option<Lock>, RunError> {
        let path = self.path.join("lock");
        let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = opened.map_err(|error| RunError::file(&path, error))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => Ok(Some(Lock { _held: held })),
            Err((_, nix::Error::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(RunError::file(&path, error.into())),
        }
    }

    /// Whether a runner has it now.
    pub fn is_run(&self) -> bool {
        self.path.is_dir() && matches!(self.try_lock(), Ok(None))
    }

    /// All suites below `root`, the one that something happened to last at the end.
    pub fn all_suites(root: &Path) -> Vec<Self> {
        let entries = fs::read_dir(root.join("suites")).into_iter().flatten().flatten();
        let named = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut all: Vec<Self> =
            named.map(|name| Self::new(root, &name)).filter(|one| one.path.join("plan.json").is_file()).collect();
        let touched = |one: &Self| {
            let files = ["journal.log", "plan.json"].map(|name| fs::metadata(one.path.join(name)));
            files.into_iter().flatten().filter_map(|file| file.modified().ok()).max()
        };
        all.small_sort_by_key(touched);
        all
    }
}
