//! [`RunState`]: what a journal comes to.

use super::{
    AttemptRecord, CorrectionRecord, CostRecord, Entry, Event, ExitRecord, FailureRecord, MemoryRecord, Outcome,
    ResultRecord, RunRecord,
};
use crate::progress::Progress;

/// What a journal comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunState {
    /// A state for each of [`RunRecord::nodes`].
    pub nodes: Vec<NodeState>,
    /// What the preflight said.
    pub preflight: Option<String>,
    /// What observations add to the estimate.
    pub correction: CorrectionRecord,
    /// How it ended.
    pub result: Option<ResultRecord>,
    /// When the last entry was written.
    pub last_ms: u64,
    /// Predicted, rehearsed and measured.
    pub memory: Option<MemoryRecord>,
    /// The process that supervises it, or did last.
    pub supervisor: Option<u32>,
}

/// Where a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// No event names it yet.
    #[default]
    Waiting,
    /// Started, and not yet past its start-up.
    Starting,
    /// It was started and did not end.
    Running,
    /// Running, without output or work.
    Stalled,
    /// Ended; the next attempt or the end follows.
    Between,
    /// How it ended.
    Ended(Outcome),
}

/// A node's attempts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeState {
    /// Where it is.
    pub phase: Phase,
    /// In the order in which they were started.
    pub attempts: Vec<AttemptState>,
    /// Where its log said last that it is.
    pub progress: Option<Progress>,
    /// Where this attempt was seen first, and when, in milliseconds since 1970.
    pub progress_since: Option<(Progress, u64)>,
    /// When the progress was said, likewise.
    pub progress_ms: u64,
    /// The last decision about it, or why it ended.
    pub said: Option<String>,
}

/// An attempt, and what became of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttemptState {
    /// What was started.
    pub record: AttemptRecord,
    /// Milliseconds since 1970.
    pub started_ms: u64,
    /// The command's process, on the machine that ran it.
    pub pid: Option<u32>,
    /// When that began, in ticks since the machine did; 0 where a record does not say.
    pub began: u64,
    /// How it ended, and after how many seconds.
    pub exit: Option<(ExitRecord, f64)>,
    /// Why it failed.
    pub failure: Option<FailureRecord>,
    /// Peaks of allocated and reserved bytes that its allocator reported.
    pub measured: Option<(u64, u64)>,
    /// Rows of a pass, and passes, that the script went on with by itself.
    pub rebatched: Vec<(u64, u64)>,
}

impl RunState {
    /// The state that `entries` of `run` lead to.
    pub fn of_journal(run: &RunRecord, entries: &[Entry]) -> Self {
        let mut state = Self { nodes: vec![NodeState::default(); run.nodes.len().max(1)], ..Self::default() };
        for entry in entries {
            state.last_ms = entry.at_ms;
            state.take_entry(entry);
        }
        // A disk that was full, or a death, may have kept the last entry from being written.
        state.result = state.result.take().or_else(|| state.result_of_nodes(run));
        state
    }

    /// What the ends of all nodes come to; `None` while one has not ended. A run is as good as the worst of its nodes.
    fn result_of_nodes(&self, run: &RunRecord) -> Option<ResultRecord> {
        let ended = |node: &NodeState| match node.phase {
            Phase::Ended(outcome) => Some(outcome),
            _ => None,
        };
        let outcomes: Vec<Outcome> = self.nodes.iter().map(ended).collect::<Option<_>>()?;
        let order = [Outcome::Refused, Outcome::Failed, Outcome::Stopped, Outcome::Succeeded];
        let (outcome, at) =
            order.into_iter().find_map(|wanted| Some((wanted, outcomes.iter().position(|o| *o == wanted)?)))?;
        let node = self.nodes.get(at)?;
        let seconds = |node: &NodeState| node.attempts.iter().filter_map(|a| a.exit.map(|exit| exit.1)).sum::<f64>();
        let cost = CostRecord {
            seconds: self.nodes.iter().map(seconds).fold(0.0, f64::max),
            lost_seconds: self.nodes.iter().flat_map(|node| &node.attempts).filter_map(AttemptState::lost).sum(),
            attempts: self.attempts(),
        };
        let exit = node.attempts.last().and_then(|attempt| attempt.exit).map(|(exit, _)| exit).unwrap_or_default();
        let said = node.said.clone().unwrap_or_default();
        Some(ResultRecord { outcome, reason: of_node(run, at, &said), exit, cost })
    }

    /// How often the command was started.
    pub fn attempts(&self) -> u32 {
        self.nodes.iter().map(|node| u32::try_from(node.attempts.len()).unwrap_or(u32::MAX)).sum()
    }

    /// Whether the same rows made up every optimizer step of every attempt; `None` where no attempt had a batch.
    pub fn effective_batch(&self) -> Option<Result<u64, Vec<u64>>> {
        let attempts = self.nodes.iter().flat_map(|node| &node.attempts);
        let mut sizes: Vec<u64> = attempts.flat_map(AttemptState::effective_batches).collect();
        sizes.dedup();
        match sizes.as_slice() {
            [] => None,
            [size] => Some(Ok(*size)),
            _ => Some(Err(sizes)),
        }
    }

    fn take_entry(&mut self, entry: &Entry) {
        match &entry.event {
            // Whoever takes a run that had ended goes on with it.
            Event::Supervised { pid } => {
                self.supervisor = Some(*pid);
                self.result = None;
                for node in &mut self.nodes {
                    let is_done = matches!(node.phase, Phase::Waiting | Phase::Ended(Outcome::Succeeded));
                    node.phase = if is_done { node.phase } else { Phase::Between };
                }
            }
            Event::Preflight { text, .. } => self.preflight = Some(text.clone()),
            Event::Corrected { correction } => self.correction = correction.clone(),
            Event::RunEnded { result } => self.result = Some(result.clone()),
            Event::AttemptStarted { attempt } => {
                let record = attempt.clone();
                let begun = AttemptState { record, started_ms: entry.at_ms, ..AttemptState::default() };
                if let Some(node) = self.nodes.get_mut(attempt.node) {
                    node.attempts.push(begun);
                    node.phase = Phase::Starting;
                    node.progress_since = None;
                }
            }
            Event::Memory { memory } => self.memory = Some(memory.clone()),
            event => self.take_of_node(event, entry.at_ms),
        }
    }

    fn take_of_node(&mut self, event: &Event, at_ms: u64) {
        let Some(node) = node_of(event).and_then(|index| self.nodes.get_mut(index)) else { return };
        match event {
            Event::ProcessStarted { number, pid, began, .. } => {
                node.change_attempt(*number, |attempt| (attempt.pid, attempt.began) = (Some(*pid), *began));
            }
            Event::Healthy { .. } => node.phase = Phase::Running,
            Event::Progress { progress, .. } => {
                node.goes_on(*progress, at_ms);
                node.phase = if node.phase == Phase::Stalled { Phase::Running } else { node.phase };
            }
            Event::Stalled { .. } => node.phase = Phase::Stalled,
            Event::AttemptEnded { number, exit, seconds, .. } => {
                node.change_attempt(*number, |attempt| attempt.exit = Some((*exit, *seconds)));
                node.phase = Phase::Between;
            }
            Event::Failed { number, failure, .. } => {
                node.change_attempt(*number, |attempt| attempt.failure = Some(failure.clone()));
            }
            Event::Measured { number, peak_allocated_bytes: allocated, peak_reserved_bytes: reserved, .. } => {
                node.change_attempt(*number, |attempt| attempt.measured = Some((*allocated, *reserved)));
            }
            Event::Rebatched { number, micro_batch_size: rows, gradient_accumulation_steps: passes, .. } => {
                node.change_attempt(*number, |attempt| attempt.rebatched.push((*rows, *passes)));
            }
            Event::Decided { text, .. } => node.said = Some(text.clone()),
            Event::NodeEnded { outcome, reason, .. } => {
                node.phase = Phase::Ended(*outcome);
                node.said = Some(reason.clone());
            }
            _ => {}
        }
    }
}

impl AttemptState {
    /// Seconds that it ran in vain.
    fn lost(&self) -> Option<f64> {
        self.failure.as_ref().and(self.exit).map(|(_, seconds)| seconds)
    }

    /// Rows of an optimizer step over all ranks, as it was told and as the script changed it.
    fn effective_batches(&self) -> Vec<u64> {
        let ranks = self.record.batch.map_or(1, |batch| batch.world_size);
        let told = self.record.batch.map(|batch| batch.effective_batch_size);
        let changed = self.rebatched.iter().map(|(rows, passes)| rows.saturating_mul(*passes).saturating_mul(ranks));
        told.into_iter().chain(changed).collect()
    }
}

/// A sentence about a node of several, with its name.
pub fn of_node(run: &RunRecord, index: usize, said: &str) -> String {
    match run.nodes.get(index).map(|node| node.name.as_str()).filter(|name| !name.is_empty()) {
        Some(name) => format!("{name}: {said}"),
        None => said.to_owned(),
    }
}

impl NodeState {
    /// Takes up that it was at `progress`, at `at_ms`.
    pub fn goes_on(&mut self, progress: Progress, at_ms: u64) {
        // An older version says the total once.
        let total = progress.total.or_else(|| self.progress.and_then(|before| before.total));
        let progress = Progress { total, ..progress };
        let anew = self.progress_since.is_none_or(|(first, _)| first.unit != progress.unit);
        if anew {
            self.progress_since = Some((progress, at_ms));
        }
        (self.progress, self.progress_ms) = (Some(progress), at_ms);
    }

    /// Seconds until its end, as far as its progress tells.
    pub fn seconds_left(&self) -> Option<f64> {
        let ((first, since), now) = (self.progress_since?, self.progress?);
        now.seconds_left(&first, self.progress_ms.saturating_sub(since) as f64 / 1000.0)
    }

    fn change_attempt(&mut self, number: u32, change: impl FnOnce(&mut AttemptState)) {
        if let Some(attempt) = self.attempts.iter_mut().rev().find(|attempt| attempt.record.number == number) {
            change(attempt);
        }
    }
}

const fn node_of(event: &Event) -> Option<usize> {
    match event {
        Event::ProcessStarted { node, .. }
        | Event::Healthy { node, .. }
        | Event::Progress { node, .. }
        | Event::Stalled { node, .. }
        | Event::AttemptEnded { node, .. }
        | Event::Failed { node, .. }
        | Event::Measured { node, .. }
        | Event::Rebatched { node, .. }
        | Event::Decided { node, .. }
        | Event::NodeEnded { node, .. } => Some(*node),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::BatchRecord;

    fn started(number: u32, effective_batch_size: u64) -> Event {
        let batch = Some(BatchRecord { effective_batch_size, ..BatchRecord::default() });
        Event::AttemptStarted { attempt: AttemptRecord { number, batch, ..AttemptRecord::default() } }
    }

    fn state(events: Vec<Event>) -> RunState {
        let entries: Vec<_> = events.into_iter().map(|event| Entry { at_ms: 1, event }).collect();
        RunState::of_journal(&RunRecord::default(), &entries)
    }

    #[test]
    fn attempts_follow_each_other() {
        let exit = ExitRecord { code: Some(1), signal: None };
        let state = state(vec![
            started(1, 32),
            Event::Healthy { node: 0, number: 1 },
            Event::Progress { node: 0, progress: Progress { step: 3, total: Some(10), ..Progress::default() } },
            Event::AttemptEnded { node: 0, number: 1, exit, seconds: 2.0 },
            started(2, 32),
        ]);
        assert_eq!(state.nodes[0].phase, Phase::Starting);
        assert_eq!(state.nodes[0].progress.map(|now| (now.step, now.total)), Some((3, Some(10))));
        assert_eq!(state.nodes[0].attempts[0].exit, Some((exit, 2.0)));
        assert_eq!((state.attempts(), state.effective_batch()), (2, Some(Ok(32))));
    }

    #[test]
    fn a_run_whose_last_entry_is_missing_ended_as_its_nodes_did() {
        let exit = ExitRecord { code: Some(0), signal: None };
        let ended = |outcome| Event::NodeEnded { node: 0, outcome, reason: "done".to_owned() };
        let attempt = Event::AttemptEnded { node: 0, number: 1, exit, seconds: 2.0 };
        let found = state(vec![started(1, 32), attempt.clone(), ended(Outcome::Succeeded)]);
        let result = found.result.unwrap();
        assert_eq!((result.outcome, result.reason.as_str(), result.exit), (Outcome::Succeeded, "done", exit));
        assert_eq!(state(vec![started(1, 32), attempt.clone()]).result, None, "it might have been started again");
        // Taken up again: what ended before has not ended now.
        let again =
            state(vec![started(1, 32), attempt, ended(Outcome::Failed), Event::Supervised { pid: 1 }, started(2, 32)]);
        assert_eq!(again.result, None);
    }

    #[test]
    fn another_effective_batch_is_seen() {
        assert_eq!(state(vec![started(1, 32), started(2, 16)]).effective_batch(), Some(Err(vec![32, 16])));
    }

    #[test]
    fn a_script_that_changes_its_batch_is_held_to_it() {
        let rebatched = |rows, passes| Event::Rebatched {
            node: 0,
            number: 1,
            micro_batch_size: rows,
            gradient_accumulation_steps: passes,
        };
        assert_eq!(state(vec![started(1, 32), rebatched(0, 0)]).effective_batch(), Some(Err(vec![32, 0])));
        let batch = BatchRecord { effective_batch_size: 32, world_size: 2, ..BatchRecord::default() };
        let attempt = AttemptRecord { number: 1, batch: Some(batch), ..AttemptRecord::default() };
        let equal = state(vec![Event::AttemptStarted { attempt }, rebatched(4, 4), rebatched(2, 8)]);
        assert_eq!(equal.effective_batch(), Some(Ok(32)));
    }

    #[test]
    fn an_event_of_a_node_that_is_not_there_changes_nothing() {
        let state = state(vec![Event::Healthy { node: 9, number: 1 }]);
        assert_eq!(state.nodes, [NodeState::default()]);
    }
}
