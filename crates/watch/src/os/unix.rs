//! Linux and macOS: modes, `flock`, `kill`.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::process::{Pid, Signal as UnixSignal, kill_process};

use super::Signal;

/// Makes a folder, with those above it, that no other user may enter.
pub(crate) fn create_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// How a file is opened that only its owner can read.
pub(crate) fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Takes from others what they may do with a file or folder that is there.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    let mode = if path.is_dir() { 0o700 } else { 0o600 };
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// The file at `path`, locked until it is closed; `None` where another process has it.
pub(crate) fn lock_file(path: &Path) -> io::Result<Option<File>> {
    let file = private_options().write(true).create(true).truncate(true).open(path)?;
    make_private(path)?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Sends `signal` to a process; `Err` says why it cannot.
pub(crate) fn send_signal(pid: u32, signal: Signal) -> Result<(), String> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("no such process")?;
    let signal = match signal {
        Signal::Interrupt => UnixSignal::INT,
        Signal::Terminate => UnixSignal::TERM,
        Signal::Kill => UnixSignal::KILL,
    };
    kill_process(pid, signal).map_err(|error| error.to_string())
}
