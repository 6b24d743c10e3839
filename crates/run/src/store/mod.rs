//! Where runs are kept: a folder a run, readable after a death at any moment, by its owner only.

mod file;
mod folder;

pub use file::{create_private_folder, lock_file, write_atomically, write_for_now};
pub use folder::{Lock, RunFolder};

use std::fs;
use std::path::{Path, PathBuf};
use tonnage_core::small_sort::SmallSort;

use tonnage_core::record::RunRecord;

use crate::{RunError, home};

/// The folder that holds all runs.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// The runs below `root`.
    pub fn new(root: PathBuf) -> Self {
        // A supervisor goes to the folder of its run.
        Self { root: std::path::absolute(&root).unwrap_or(root) }
    }

    /// The runs of this user: see [`home::default_root`].
    pub fn of_user() -> Self {
        Self::new(home::default_root())
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes a run's folder and writes `run` into it; its id is the time, made unique, its sequence one more than any before.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn create(&self, mut run: RunRecord) -> Result<RunFolder, RunError> {
        let runs = self.root.join("runs");
        create_private_folder(&self.root)?;
        create_private_folder(&runs)?;
        run.sequence = self.next_sequence()?;
        let base = time_stamp(run.created_ms);
        let mut attempt = 0;
        loop {
            run.id = if attempt == 0 { base.clone() } else { format!("{base}-{attempt}") };
            let path = runs.join(&run.id);
            match fs::create_dir(&path) {
                Ok(()) => return RunFolder::create(path, &run),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => attempt += 1,
                Err(error) => return Err(RunError::file(&path, error)),
            }
        }
    }

    /// The next number of a run. Clocks jump; a counter does not.
    fn next_sequence(&self) -> Result<u64, RunError> {
        let path = self.root.join("sequence");
        let _held = lock_file(&path.with_extension("lock"))?;
        let counted = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
        // Lost, or of a version that did not count.
        let last = counted.unwrap_or_else(|| self.list().last().map_or(0, |run| run.run().sequence));
        let next = last.saturating_add(1);
        // Where it is lost the runs are counted, as above.
        write_for_now(&path, next.to_string().as_bytes())?;
        Ok(next)
    }

    /// All runs, the oldest first; folders without a record are passed over.
    pub fn list(&self) -> Vec<RunFolder> {
        let entries = fs::read_dir(self.root.join("runs")).into_iter().flatten().flatten();
        let mut runs: Vec<RunFolder> = entries.filter_map(|entry| RunFolder::open(entry.path()).ok()).collect();
        // Those that were not counted by their names: a time and, where that was taken, a number.
        runs.small_sort_by_key(|run| {
            let id = run.id().to_owned();
            (run.run().sequence, id.chars().take(STAMP_LEN).collect::<String>(), id.len(), id)
        });
        runs
    }

    /// The run called `name`, as of [`Self::find`]; `last` is the newest that lives or left processes, where one does.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub fn find_living(&self, name: &str) -> Result<RunFolder, RunError> {
        let runs = || self.list().into_iter().rev();
        let has_left = |run: &RunFolder| run.state().result.is_none() && !run.left_behind().is_empty();
        let living = || runs().find(RunFolder::is_supervised).or_else(|| runs().find(has_left));
        match (name == "last").then(living).flatten() {
            Some(run) => Ok(run),
            None => self.find(name),
        }
    }

    /// The run called `name`: its id, the beginning or the end of one, or `last`.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub fn find(&self, name: &str) -> Result<RunFolder, RunError> {
        let mut runs = self.list();
        if name == "last" {
            return runs.pop().ok_or_else(|| RunError::NoSuchRun("there is no run yet".to_owned()));
        }
        if let Some(at) = runs.iter().position(|run| run.id() == name) {
            return Ok(runs.swap_remove(at));
        }
        runs.retain(|run| run.id().starts_with(name) || run.id().ends_with(name));
        match (runs.pop(), runs.len()) {
            (Some(run), 0) => Ok(run),
            (None, _) => Err(RunError::NoSuchRun(format!("there is no run `{name}`"))),
            (Some(_), others) => Err(RunError::NoSuchRun(format!("`{name}` may be {} runs", others + 1))),
        }
    }
}

/// Characters of a stamp.
const STAMP_LEN: usize = "20261121-120000".len();

/// Milliseconds since 1970 as `20261121-120000`, UTC.
fn time_stamp(ms: u64) -> String {
    let (year, month, day) = civil_date(ms / 86_400_000);
    let second = ms / 1000 % 86_400;
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// Days since 1970 as year, month and day, by counting eras of 400 years from 1 March of year 0.
pub(crate) const fn civil_date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + if month <= 2 { 1 } else { 0 }, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_dates() {
        assert_eq!(time_stamp(0), "19700101-000000");
        assert_eq!(time_stamp(951_782_399_000), "20000228-235959");
        assert_eq!(time_stamp(951_782_400_000), "20000229-000000");
        assert_eq!(time_stamp(1_795_257_000_000), "20261121-103000");
    }
}
