//! What a supervisor that was killed, together with its keepers, left behind: processes of attempts without an end.

use std::time::Duration;

use tonnage_core::record::{Event, ExitRecord, Outcome, Phase, RunState};

use crate::RunError;
use crate::clock::now_ms;
use crate::launch::{end_processes_of, left_evidence};
use crate::store::RunFolder;

/// Ends the processes of attempts that have no end in the journal, and writes the ends. A keeper that lives does it itself, and
/// is given `grace` for that. The processes, and whether none is left.
pub(super) fn reclaim_orphans(
    folder: &RunFolder,
    state: &RunState,
    grace: Duration,
) -> Result<(Vec<u32>, bool), RunError> {
    let last = |(node, state): (usize, &tonnage_core::record::NodeState)| Some((node, state.attempts.last()?.clone()));
    let open: Vec<_> =
        state.nodes.iter().enumerate().filter_map(last).filter(|(_, last)| last.exit.is_none()).collect();
    if open.is_empty() {
        return Ok((Vec::new(), true));
    }
    let (pids, all_gone) = end_processes_of(folder.path(), &folder.recorded(), grace);
    for (node, attempt) in open {
        let number = attempt.record.number;
        let passed = now_ms().saturating_sub(attempt.started_ms) as f64 / 1000.0;
        // What the keeper saw of the end, where it lived to see it.
        let seen = left_evidence(&folder.attempt_path(node, number));
        let (exit, seconds) = seen.map_or((ExitRecord::default(), passed), |seen| (seen.exit, seen.seconds));
        folder.append(Event::AttemptEnded { node, number, exit, seconds })?;
    }
    if !pids.is_empty() {
        folder.append(Event::Reclaimed { pids: pids.clone() })?;
    }
    Ok((pids, all_gone))
}

/// Ends what a run left that nobody supervises, and the run with it. The processes, and whether none is left; `None` where
/// another has the run.
///
/// # Errors
/// When the record cannot be written.
pub fn end_left_behind(folder: &RunFolder, grace: Duration) -> Result<Option<(Vec<u32>, bool)>, RunError> {
    let Some(_lock) = folder.lock()? else { return Ok(None) };
    let ended = reclaim_orphans(folder, &folder.state(), grace)?;
    for (node, state) in folder.state().nodes.iter().enumerate() {
        if matches!(state.phase, Phase::Ended(_)) {
            continue;
        }
        let last = state.attempts.last().filter(|last| last.failure.is_none());
        let seen = last.and_then(|last| left_evidence(&folder.attempt_path(node, last.record.number)));
        let (outcome, reason) = match seen.is_some_and(|seen| seen.is_success()) {
            true => (Outcome::Succeeded, "done, while its supervisor died"),
            false => (Outcome::Stopped, "stopped after its supervisor had died"),
        };
        folder.append(Event::NodeEnded { node, outcome, reason: reason.to_owned() })?;
    }
    if let Some(result) = folder.state().result {
        folder.append(Event::RunEnded { result })?;
    }
    Ok(Some(ended))
}
