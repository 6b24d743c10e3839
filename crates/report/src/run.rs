//! [`RunLine`]: a run in a line, and the words for where it is.

use serde::Serialize;
use serde_json::{Value, json};
use tonnage_core::record::{BatchRecord, NodeState, Outcome, Phase, RunRecord, RunState};

use crate::view::VERSION;
use crate::words::shell_words;

/// A run in a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunLine {
    pub id: String,
    /// Where it is, in words.
    pub state: String,
    /// Starts of the command.
    pub attempts: u32,
    /// How far it is.
    pub progress: String,
    /// The command as a shell takes it: of the last attempt on the first node, templates filled.
    pub command: String,
    /// Whether a supervisor has it now.
    pub lives: bool,
    /// Processes that live although nobody supervises it.
    pub left_behind: Vec<i32>,
}

impl RunLine {
    /// The line of `run`; `lives` says whether a supervisor has it, `now_ms` what time it is.
    pub fn new(run: &RunRecord, state: &RunState, lives: bool, now_ms: u64) -> Self {
        Self {
            id: run.id.clone(),
            state: state_words(state, lives),
            attempts: state.attempts(),
            progress: progress_text(state, lives, now_ms),
            command: shell_words(started_command(state).unwrap_or(&run.command)),
            lives,
            left_behind: Vec::new(),
        }
    }

    /// The same, with processes that its dead supervisor left.
    pub fn with_left_behind(mut self, pids: Vec<i32>) -> Self {
        let say = |pids: &[i32]| match pids {
            [] => String::new(),
            [pid] => format!("; its process {pid} still runs, `tonnage stop {}` ends it", self.id),
            pids => format!("; {} of its processes still run, `tonnage stop {}` ends them", pids.len(), self.id),
        };
        let said = say(&pids);
        self.state.push_str(&said);
        self.left_behind = pids;
        self
    }
}

/// What was started last, templates filled; `None` before the first attempt.
fn started_command(state: &RunState) -> Option<&Vec<String>> {
    let attempt = state.nodes.first()?.attempts.last()?;
    Some(&attempt.record.argv).filter(|argv| !argv.is_empty())
}

/// Where a run is. What a journal says is past where nobody supervises it any more.
fn state_words(state: &RunState, lives: bool) -> String {
    match (&state.result, lives) {
        (Some(result), false) => outcome_words(result.outcome).to_owned(),
        (None, false) => "abandoned (its supervisor died)".to_owned(),
        (_, true) => match state.nodes.as_slice() {
            [node] => phase_words(node, true),
            nodes => {
                let running = nodes.iter().filter(|node| matches!(node.phase, Phase::Running | Phase::Starting));
                format!("{} of {} nodes running", running.count(), nodes.len())
            }
        },
    }
}

const fn outcome_words(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::Stopped => "stopped",
        Outcome::Refused => "refused",
    }
}

/// Where a node is.
pub(crate) fn phase_words(node: &NodeState, lives: bool) -> String {
    match node.phase {
        Phase::Ended(outcome) => outcome_words(outcome).to_owned(),
        _ if !lives => "abandoned".to_owned(),
        Phase::Waiting => "waiting".to_owned(),
        Phase::Starting => "starting".to_owned(),
        Phase::Running => "running".to_owned(),
        Phase::Stalled => "stalled".to_owned(),
        Phase::Between => "between attempts".to_owned(),
    }
}

/// How far a run is: its only node, or of several the one that is least far.
fn progress_text(state: &RunState, lives: bool, now_ms: u64) -> String {
    match state.nodes.as_slice() {
        [node] => node_progress(node, lives, now_ms),
        nodes => {
            let known: Vec<_> = nodes.iter().filter_map(|node| node.progress).collect();
            let least = known.iter().min_by_key(|progress| (progress.epoch, progress.step));
            least
                .filter(|_| known.len() == nodes.len())
                .map_or_else(String::new, tonnage_core::progress::Progress::words)
        }
    }
}

/// How far a node is, and the time that is left if steps take as long as they took.
pub(crate) fn node_progress(node: &NodeState, lives: bool, now_ms: u64) -> String {
    let Some(progress) = node.progress else { return String::new() };
    let words = progress.words();
    match node.seconds_left().filter(|_| lives) {
        Some(seconds) => {
            // Time has gone by since it was said.
            let since = now_ms.saturating_sub(node.progress_ms) as f64 / 1000.0;
            let whole = progress.epoch.is_none() || progress.epochs.is_some();
            let of = if whole { "" } else { " of the epoch" };
            format!("{words}, about {} left{of}", duration_text((seconds - since).max(0.0)))
        }
        None => words,
    }
}

fn duration_text(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// `4 x 8 = 32 rows`
pub(crate) fn batch_words(batch: &BatchRecord) -> String {
    let ranks = if batch.world_size > 1 { format!(" x {} ranks", batch.world_size) } else { String::new() };
    let (rows, passes) = (batch.micro_batch_size, batch.gradient_accumulation_steps);
    format!("{rows} rows x {passes} passes{ranks} = {}", batch.effective_batch_size)
}

/// A run as JSON.
pub fn run_json(run: &RunRecord, state: &RunState, line: &RunLine) -> Value {
    let attempts = state.nodes.iter().flat_map(|node| &node.attempts).map(|attempt| {
        json!({
            "attempt": attempt.record,
            "started_ms": attempt.started_ms,
            "pid": attempt.pid,
            "exit": attempt.exit.map(|(exit, seconds)| json!({"code": exit.code, "signal": exit.signal, "seconds": seconds})),
            "failure": attempt.failure,
            "rebatched": attempt.rebatched,
            "measured": attempt.measured.map(|(allocated, reserved)| {
                json!({"peak_allocated_bytes": allocated, "peak_reserved_bytes": reserved})
            }),
        })
    });
    let nodes = state.nodes.iter().enumerate().map(|(index, node)| {
        json!({
            "name": run.nodes.get(index).map(|node| &node.name),
            "state": phase_words(node, line.lives),
            "progress": node.progress,
            "seconds_left": node.seconds_left().filter(|_| line.lives),
            "said": node.said,
        })
    });
    let effective = state.effective_batch();
    json!({
        "version": VERSION,
        "run": line,
        "record": run,
        "preflight": state.preflight,
        "memory": state.memory,
        "effective_batch_size": effective.as_ref().and_then(|answer| answer.as_ref().ok()),
        "effective_batch_is_equal": effective.as_ref().map(Result::is_ok),
        "correction": state.correction,
        "nodes": nodes.collect::<Vec<_>>(),
        "attempts": attempts.collect::<Vec<_>>(),
        "result": state.result,
    })
}

#[cfg(test)]
mod tests {
    use tonnage_core::progress::Progress;
    use tonnage_core::record::{AttemptState, ResultRecord};

    use super::*;

    #[test]
    fn what_nobody_supervises_does_not_run() {
        let node = NodeState { phase: Phase::Running, ..NodeState::default() };
        let state = RunState { nodes: vec![node], ..RunState::default() };
        assert_eq!(state_words(&state, true), "running");
        assert_eq!(state_words(&state, false), "abandoned (its supervisor died)");
        let ended = RunState { result: Some(ResultRecord::default()), ..state };
        assert_eq!(state_words(&ended, false), "failed");
    }

    #[test]
    fn what_is_left_follows_from_what_was_seen_done() {
        let at = |step: u64| Progress { step, total: Some(40), ..Progress::default() };
        let mut node = NodeState { attempts: vec![AttemptState::default()], ..NodeState::default() };
        // Taken up at step 5.
        node.goes_on(at(5), 1000);
        node.goes_on(at(10), 51_000);
        let state = RunState { nodes: vec![node.clone()], ..RunState::default() };
        assert_eq!(progress_text(&state, true, 51_000), "10/40, about 5 min left");
        assert_eq!(progress_text(&state, true, 251_000), "10/40, about 2 min left");
        assert_eq!(progress_text(&state, false, 51_000), "10/40");
        let mut other = node.clone();
        other.goes_on(at(7), 51_000);
        assert_eq!(progress_text(&RunState { nodes: vec![node, other], ..RunState::default() }, true, 0), "7/40");
    }

    #[test]
    fn processes_that_were_left_are_said() {
        let line = RunLine::new(&RunRecord::default(), &RunState::default(), false, 0).with_left_behind(vec![7]);
        assert!(line.state.contains("its process 7 still runs"), "{}", line.state);
    }
}
