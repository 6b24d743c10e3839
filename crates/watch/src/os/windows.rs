//! Windows: files of a user's folders are the user's already, a lock is a file that nobody else may open, and a process is sent
//! nothing.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::path::Path;

use super::Signal;

/// `ERROR_SHARING_VIOLATION` of `winerror.h`: another process has the file.
const SHARING_VIOLATION: i32 = 32;

/// Makes a folder, with those above it.
pub(crate) fn create_private_folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// How a file is opened that is the user's.
pub(crate) fn private_options() -> OpenOptions {
    OpenOptions::new()
}

/// Nothing: access follows the folder.
pub(crate) fn make_private(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// The file at `path`, which nobody else can open until it is closed; `None` where another process has it.
pub(crate) fn lock_file(path: &Path) -> io::Result<Option<File>> {
    match OpenOptions::new().write(true).create(true).truncate(true).share_mode(0).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.raw_os_error() == Some(SHARING_VIOLATION) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Always an error: Windows has no such signals.
pub(crate) fn send_signal(_pid: u32, _signal: Signal) -> Result<(), String> {
    Err("Windows has no signals; end it with `taskkill /PID` or the Task Manager".to_owned())
}
