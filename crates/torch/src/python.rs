//! Asks a Python where its torch lies, without importing it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// `find_spec` reads no module's code, so this takes milliseconds and starts nothing.
const ASK: &str =
    "import importlib.util as u; s = u.find_spec('torch'); print((s and s.submodule_search_locations or [''])[0])";
/// A Python on a slow network disk has this long.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The folder of the torch that `python` would import.
pub(crate) fn torch_of(python: &Path) -> Option<PathBuf> {
    let mut child = Command::new(python)
        .args(["-c", ASK])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let asked = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if asked.elapsed() < TIMEOUT => thread::sleep(Duration::from_millis(5)),
            _ => {
                // It may have ended meanwhile; there is no answer either way.
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    };
    let mut answer = String::new();
    child.stdout.take()?.take(1 << 16).read_to_string(&mut answer).ok()?;
    let folder = answer.trim();
    (status.success() && !folder.is_empty()).then(|| PathBuf::from(folder))
}
