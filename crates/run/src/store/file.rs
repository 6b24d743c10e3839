//! Files that are whole or absent: written aside, flushed, moved into place.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

use crate::RunError;

/// Makes a folder and those above it, for its owner only.
///
/// # Errors
/// When it cannot be made.
pub fn create_private_folder(path: &Path) -> Result<(), RunError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| RunError::file(path, error))
}

/// Waits for the lock at `path`; whoever dies gives it back.
///
/// # Errors
/// When the file cannot be made.
pub fn lock_file(path: &Path) -> Result<Flock<File>, RunError> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = opened.map_err(|error| RunError::file(path, error))?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| RunError::file(path, error.into()))
}

/// Replaces the file at `path` by one that holds `bytes`, for good: whoever reads finds the old or the new one, also after
/// the machine has lost its power.
///
/// # Errors
/// When it cannot be written.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    replace(path, bytes, true)
}

/// The same without waiting for the disk, for what matters only while the processes live that read it, or is made anew where
/// it is lost: a command waits for each of these before it starts.
///
/// # Errors
/// When it cannot be written.
pub fn write_for_now(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    replace(path, bytes, false)
}

fn replace(path: &Path, bytes: &[u8], is_kept: bool) -> Result<(), RunError> {
    let aside = path.with_extension(format!("tmp-{}", std::process::id()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
        file.write_all(bytes)?;
        if is_kept {
            file.sync_all()?;
        }
        fs::rename(&aside, path)?;
        // The new name is safe when its folder is.
        path.parent().filter(|_| is_kept).map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    write().map_err(|error: std::io::Error| {
        // What was written aside is of no use to anyone; whether it can be removed changes nothing.
        let _ = fs::remove_file(&aside);
        RunError::file(path, error)
    })
}
