//! Checkpoints: folders `checkpoint-N` that are whole or are not there. They are written beside their place and moved there when
//! every byte is on the disk, so that a kill or a full disk costs nothing but the checkpoint that was being written.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use tonnage_core::small_sort::SmallSort;

use crate::error::TrainError;

const PREFIX: &str = "checkpoint-";
/// A folder that is being written, or that a kill left.
const UNFINISHED: &str = ".writing-";
/// A whole checkpoint that one of the same step takes the place of; it counts until that one is there.
const REPLACED: &str = ".replaced-";

/// The folder of a run's checkpoints.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    /// How many are kept, the newest; at least one.
    keep: usize,
}

impl Checkpoints {
    /// `save_total_limit` of transformers: older ones go when a newer one is whole.
    pub fn new(folder: &Path, keep: usize) -> Self {
        Self { folder: folder.to_owned(), keep: keep.max(1) }
    }

    /// Writes the checkpoint of `step`: `write` fills a folder, which then becomes `checkpoint-<step>`.
    ///
    /// # Errors
    /// Those of `write`, and the disk's. What was there before is still there.
    pub fn save(&self, step: u64, write: impl FnOnce(&Path) -> Result<(), TrainError>) -> Result<PathBuf, TrainError> {
        let place = self.folder.join(format!("{PREFIX}{step}"));
        let unfinished = self.folder.join(format!("{UNFINISHED}{step}-{}", std::process::id()));
        fs::create_dir_all(&unfinished).map_err(|error| TrainError::about_file(&unfinished, error))?;
        let written = write(&unfinished)
            .and_then(|()| sync_all(&unfinished))
            .and_then(|()| self.put_in_place(&unfinished, &place));
        if written.is_err() {
            // It is of no use; that it could not be written is told.
            let _ = fs::remove_dir_all(&unfinished);
        }
        written?;
        self.remove_old()?;
        Ok(place)
    }

    fn put_in_place(&self, unfinished: &Path, place: &Path) -> Result<(), TrainError> {
        // The same step again, after a restart. A kill between the two renames leaves the old one, which `list` finds.
        if place.exists() {
            let old = self.folder.join(format!("{REPLACED}{}", step_of(place, PREFIX).unwrap_or_default()));
            if old.exists() {
                fs::remove_dir_all(&old).map_err(|error| TrainError::about_file(&old, error))?;
            }
            fs::rename(place, &old).map_err(|error| TrainError::about_file(place, error))?;
        }
        fs::rename(unfinished, place).map_err(|error| TrainError::about_file(place, error))?;
        sync_folder(&self.folder)
    }

    /// All whole checkpoints, oldest first.
    ///
    /// # Errors
    /// When the folder cannot be read; one that is not there has none.
    pub fn list(&self) -> Result<Vec<(u64, PathBuf)>, TrainError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(TrainError::about_file(&self.folder, error)),
        };
        let folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        let named = |prefix| folders.iter().filter_map(move |path| Some((step_of(path, prefix)?, path.clone())));
        let mut found: Vec<(u64, PathBuf)> = named(PREFIX).collect();
        let left: Vec<_> = named(REPLACED).filter(|(step, _)| !found.iter().any(|(whole, _)| whole == step)).collect();
        found.extend(left);
        found.small_sort();
        Ok(found)
    }

    /// The newest whole checkpoint.
    ///
    /// # Errors
    /// As [`Checkpoints::list`].
    pub fn newest(&self) -> Result<Option<(u64, PathBuf)>, TrainError> {
        Ok(self.list()?.pop())
    }

    /// Removes what kills left and the oldest beyond those that are kept.
    fn remove_old(&self) -> Result<(), TrainError> {
        let all = self.list()?;
        let old = all.iter().take(all.len().saturating_sub(self.keep)).map(|(_, path)| path.clone());
        let entries = fs::read_dir(&self.folder).map_err(|error| TrainError::about_file(&self.folder, error))?;
        let is_left = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(UNFINISHED) || (name.starts_with(REPLACED) && !all.iter().any(|(_, whole)| whole == path))
        };
        let left = entries.flatten().map(|entry| entry.path()).filter(is_left);
        old.chain(left)
            .try_for_each(|path| fs::remove_dir_all(&path).map_err(|error| TrainError::about_file(&path, error)))
    }
}

/// The step that a folder's name tells behind `prefix`.
fn step_of(folder: &Path, prefix: &str) -> Option<u64> {
    folder.file_name()?.to_str()?.strip_prefix(prefix)?.parse().ok()
}

/// Puts every file of a folder, and the folder, on the disk.
fn sync_all(folder: &Path) -> Result<(), TrainError> {
    for entry in fs::read_dir(folder).map_err(|error| TrainError::about_file(folder, error))? {
        sync_folder(&entry.map_err(|error| TrainError::about_file(folder, error))?.path())?;
    }
    sync_folder(folder)
}

fn sync_folder(path: &Path) -> Result<(), TrainError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| TrainError::about_file(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tonnage-checkpoints-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn content(text: &'static str) -> impl FnOnce(&Path) -> Result<(), TrainError> {
        move |folder| fs::write(folder.join("model"), text).map_err(|error| TrainError::about_file(folder, error))
    }

    #[test]
    fn the_newest_are_kept_by_number_not_by_name() {
        let folder = Folder::new("newest");
        let checkpoints = Checkpoints::new(&folder.0, 2);
        assert!(checkpoints.newest().unwrap().is_none());
        for step in [8, 9, 10] {
            checkpoints.save(step, content("x")).unwrap();
        }
        let steps: Vec<u64> = checkpoints.list().unwrap().into_iter().map(|(step, _)| step).collect();
        assert_eq!(steps, [9, 10]);
    }

    #[test]
    fn one_that_fails_leaves_the_others() {
        let folder = Folder::new("fails");
        let checkpoints = Checkpoints::new(&folder.0, 1);
        checkpoints.save(1, content("whole")).unwrap();
        let failed = checkpoints.save(2, |folder| {
            fs::write(folder.join("model"), "half").unwrap();
            Err(TrainError::about_weights(folder, "the disk is full"))
        });
        assert!(failed.unwrap_err().to_string().contains("the disk is full"));
        let (step, path) = checkpoints.newest().unwrap().unwrap();
        assert_eq!((step, fs::read_to_string(path.join("model")).unwrap().as_str()), (1, "whole"));
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "nothing half written stays");
    }

    #[test]
    fn a_kill_between_two_of_one_step_loses_neither() {
        let folder = Folder::new("replaced");
        let checkpoints = Checkpoints::new(&folder.0, 2);
        checkpoints.save(7, content("old")).unwrap();
        fs::rename(folder.0.join("checkpoint-7"), folder.0.join(".replaced-7")).unwrap();
        let (step, path) = checkpoints.newest().unwrap().unwrap();
        assert_eq!((step, fs::read_to_string(path.join("model")).unwrap().as_str()), (7, "old"));
        checkpoints.save(7, content("new")).unwrap();
        let (_, path) = checkpoints.newest().unwrap().unwrap();
        assert_eq!(fs::read_to_string(path.join("model")).unwrap(), "new");
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "the old one goes when the new one is there");
    }

    #[test]
    fn what_a_kill_left_is_no_checkpoint_and_goes() {
        let folder = Folder::new("kill");
        fs::create_dir_all(folder.0.join(".writing-7-1234")).unwrap();
        fs::create_dir_all(folder.0.join("checkpoint-notes")).unwrap();
        let checkpoints = Checkpoints::new(&folder.0, 3);
        assert!(checkpoints.newest().unwrap().is_none());
        checkpoints.save(1, content("x")).unwrap();
        checkpoints.save(1, content("again")).unwrap();
        let (_, path) = checkpoints.newest().unwrap().unwrap();
        assert_eq!(fs::read_to_string(path.join("model")).unwrap(), "again");
        assert!(!folder.0.join(".writing-7-1234").exists() && folder.0.join("checkpoint-notes").exists());
    }
}
