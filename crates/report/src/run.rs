//! [`RunLine`]: a run in a line, and the words for where it is.

use serde::Serialize;
use serde_json::{Value, json};
use tonnage_core::record::{BatchRecord, NodeState, Outcome, Phase, RunRecord, RunState};

use crate::view::VERSION;
use crate::words::shell_words;

/// A run in a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunLine {
    /// Its id.
    pub id: String,
    /// Where it is, in words.
    pub state: String,
    /// Starts of the command.
    pub attempts: u32,
    /// How far it is.
    pub progress: String,
    /// The command, as a shell takes it.
    pub command: String,
    /// Whether a supervisor has it now.
    pub lives: bool,
}

impl RunLine {
    /// The line of `run`; `lives` says whether a supervisor has it, `now_ms` what time it is.
    pub fn new(run: &RunRecord, state: &RunState, lives: bool, now_ms: u64) -> Self {
        Self {
            id: run.id.clone(),
            state: words(state, lives),
            attempts: state.attempts(),
            progress: progress(state, lives, now_ms),
            command: shell_words(&run.command),
            lives,
        }
    }
}

/// Where a run is. What a journal says is past where nobody supervises it any more.
fn words(state: &RunState, lives: bool) -> String {
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

/// Step, total, and the time that is left if steps take as long as they took.
fn progress(state: &RunState, lives: bool, now_ms: u64) -> String {
    let [node] = state.nodes.as_slice() else { return String::new() };
    let Some((step, total)) = node.progress else { return String::new() };
    let Some(total) = total else { return format!("step {step}") };
    let share = format!("{step}/{total}");
    let started = node.attempts.last().map(|attempt| attempt.started_ms).unwrap_or(now_ms);
    let seconds = state.last_ms.saturating_sub(started) as f64 / 1000.0;
    if !lives || step == 0 || step >= total || seconds <= 0.0 {
        return share;
    }
    let left = seconds / step as f64 * (total - step) as f64;
    format!("{share}, about {} left", duration(left))
}

fn duration(seconds: f64) -> String {
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
    let effective = state.effective_batch();
    json!({
        "version": VERSION,
        "run": line,
        "record": run,
        "preflight": state.preflight,
        "effective_batch_size": effective.as_ref().and_then(|answer| answer.as_ref().ok()),
        "effective_batch_is_equal": effective.as_ref().map(Result::is_ok),
        "correction": state.correction,
        "attempts": attempts.collect::<Vec<_>>(),
        "result": state.result,
    })
}

#[cfg(test)]
mod tests {
    use tonnage_core::record::{AttemptState, ResultRecord};

    use super::*;

    #[test]
    fn what_nobody_supervises_does_not_run() {
        let node = NodeState { phase: Phase::Running, ..NodeState::default() };
        let state = RunState { nodes: vec![node], ..RunState::default() };
        assert_eq!(words(&state, true), "running");
        assert_eq!(words(&state, false), "abandoned (its supervisor died)");
        let ended = RunState { result: Some(ResultRecord::default()), ..state };
        assert_eq!(words(&ended, false), "failed");
    }

    #[test]
    fn what_is_left_follows_from_what_was_done() {
        let attempt = AttemptState { started_ms: 1000, ..AttemptState::default() };
        let node = NodeState { attempts: vec![attempt], progress: Some((10, Some(40))), ..NodeState::default() };
        let state = RunState { nodes: vec![node], last_ms: 101_000, ..RunState::default() };
        assert_eq!(progress(&state, true, 0), "10/40, about 5 min left");
        assert_eq!(progress(&state, false, 0), "10/40");
    }
}
