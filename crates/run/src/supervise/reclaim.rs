//! What a supervisor that was killed, together with its keepers, left behind: processes of attempts without an end.

use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tonnage_core::record::{Event, ExitRecord, RunState};

use crate::RunError;
use crate::launch::is_alive;
use crate::store::{RunFolder, now_ms};

/// Ends processes whose attempt has no end in the journal, and writes the ends. A keeper that lives does it itself, and
/// is given `grace` for that.
pub(super) fn reclaim(folder: &RunFolder, state: &RunState, grace: Duration) -> Result<(), RunError> {
    let mut pids = Vec::new();
    for (node, attempt) in state.nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.attempts.last()?))) {
        if attempt.exit.is_some() {
            continue;
        }
        if let Some(pid) = attempt.pid.filter(|pid| is_of_this_run(*pid, folder)) {
            end_group(pid, grace);
            pids.push(pid);
        }
        let seconds = now_ms().saturating_sub(attempt.started_ms) as f64 / 1000.0;
        let number = attempt.record.number;
        folder.append(Event::AttemptEnded { node, number, exit: ExitRecord::default(), seconds })?;
    }
    if pids.is_empty() { Ok(()) } else { folder.append(Event::Reclaimed { pids }) }
}

/// Whether a process was told the attempt's folder of this run: a number may have been given to another since.
fn is_of_this_run(pid: u32, folder: &RunFolder) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let path = folder.path().display().to_string();
    let names = environment.split(|byte| *byte == 0).filter_map(|entry| entry.strip_prefix(b"TONNAGE_ATTEMPT_DIR="));
    names.into_iter().any(|value| value.starts_with(path.as_bytes()))
}

fn end_group(pid: u32, grace: Duration) {
    let group = Pid::from_raw(pid.cast_signed());
    let until = std::time::Instant::now() + grace;
    // A group that is gone is what is wanted.
    let _ = killpg(group, Signal::SIGTERM);
    while std::time::Instant::now() < until && is_alive(pid.cast_signed()) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = killpg(group, Signal::SIGKILL);
}
