//! Supervision: starts a run's nodes, watches them, and asks the guard what follows each end.

mod admission;
mod attempt;
mod cgroup;
mod decision;
mod node;
mod notes;
mod reclaim;
mod running;
mod saved;
mod script;
mod signals;

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tonnage_core::record::{Event, NodeRecord, NodeState, Outcome, Phase, ResultRecord, RunRecord, RunState};

use crate::RunError;
use crate::guard::{Guard, Next, Preflight};
use crate::launch::{Notice, left_evidence};
use crate::os;
use crate::secrets::Secrets;
use crate::store::{Lock, RunFolder};

use admission::Admission;
use node::{Node, Stage};
use notes::Notes;

pub use reclaim::end_left_behind;
pub use script::python_module;

/// How often nodes are looked at when nothing is heard of them.
const TICK: Duration = Duration::from_secs(1);
/// How long a look at the lock by another command may keep a supervisor from it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Reports progress: what is decided, and why.
pub type Reporter<'a> = dyn Fn(&str) + 'a;

/// What all runs of a supervisor share.
pub struct SuperviseContext<'a> {
    /// The folder of all runs.
    pub root: &'a Path,
    /// What the record does not hold.
    pub secrets: Secrets,
    /// Whether what processes write is shown.
    pub on_screen: bool,
    /// Called with each decision.
    pub report: &'a Reporter<'a>,
}

/// Runs what `folder` says until it ends.
///
/// # Errors
/// When another supervisor has the run, or its folder cannot be written.
pub fn supervise_run(
    folder: &RunFolder,
    guard: Guard<'_>,
    context: SuperviseContext<'_>,
) -> Result<ResultRecord, RunError> {
    os::check_supported()?;
    let _lock = lock_run(folder)?;
    let (sender, notices) = channel();
    signals::take_signals(sender.clone());
    // Orphans of a keeper that was killed come to the supervisor.
    os::adopt_orphans();
    let before = folder.state();
    let warn = |error: RunError| (context.report)(&format!("warning: {error}"));
    let grace = Duration::from_secs(guard.policy.grace_seconds);
    let _ = reclaim::reclaim_orphans(folder, &before, grace).map_err(warn);
    let before = folder.state();
    let ranks = guard.job.as_ref().map(|job| job.spec.parallel.world_size);
    let opened = Admission::open(context.root, folder.path(), folder.run(), ranks).map_err(warn);
    let admission = opened.unwrap_or_else(|()| Admission::none(folder.run()));
    let mut supervisor = Supervisor {
        folder,
        notes: Notes::new(folder),
        context,
        guard,
        admission,
        nodes: Vec::new(),
        sender,
        stopping: None,
        warned: false,
        began: Instant::now(),
        ticks: 0,
    };
    supervisor.note_event(Event::Supervised { pid: std::process::id() });
    supervisor.prepare_nodes(&before);
    let result = supervisor.watch_nodes(&notices);
    supervisor.or_warn(supervisor.admission.release());
    supervisor.note_event(Event::RunEnded { result: result.clone() });
    Ok(result)
}

fn lock_run(folder: &RunFolder) -> Result<Lock, RunError> {
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match folder.lock()? {
            Some(lock) => return Ok(lock),
            None if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            None => return Err(RunError::Supervised(folder.id().to_owned())),
        }
    }
}

struct Supervisor<'a> {
    folder: &'a RunFolder,
    notes: Notes<'a>,
    context: SuperviseContext<'a>,
    guard: Guard<'a>,
    admission: Admission,
    nodes: Vec<Node>,
    sender: Sender<Notice>,
    /// The signal that asked for the end.
    stopping: Option<i32>,
    /// Whether a scheduler has warned of the end.
    warned: bool,
    began: Instant,
    ticks: u64,
}

impl<'a> Supervisor<'a> {
    fn report(&self, text: &str) {
        (self.context.report)(text);
    }

    /// Writes an event down.
    fn note_event(&self, event: Event) {
        if let Some(text) = self.notes.add(event) {
            self.report(&text);
        }
    }

    /// What went right; what did not is said, and done without.
    fn or_warn<T>(&self, result: Result<T, RunError>) -> Option<T> {
        result.map_err(|error| self.report(&format!("warning: {error}"))).ok()
    }

    fn run(&self) -> &'a RunRecord {
        self.folder.run()
    }

    fn node_record(&self, node: usize) -> Option<&'a NodeRecord> {
        self.run().nodes.get(node)
    }

    /// Takes up what an earlier supervisor left, holds the job against the GPU, and plans each node's first attempt.
    fn prepare_nodes(&mut self, before: &RunState) {
        self.guard.restore_correction(&before.correction);
        self.guard.made_before = before.nodes.iter().map(|node| node.attempts.len() as u32).max().unwrap_or(0);
        let first = self.admit_run();
        let stagger = Duration::from_secs(self.guard.policy.stagger_seconds);
        let mut at = Instant::now();
        for (index, state) in before.nodes.iter().enumerate() {
            let mut node = Node::default();
            node.attempts.extend(state.attempts.iter().map(|attempt| attempt.record.clone()));
            node.failures.extend(state.attempts.iter().filter_map(|attempt| attempt.failure.clone()));
            self.nodes.push(node);
            if state.phase == Phase::Ended(Outcome::Succeeded) {
                self.end_node(index, Outcome::Succeeded, "done before".to_owned());
                continue;
            }
            if self.was_done_unseen(index, state) {
                continue;
            }
            let next = match (&first, state.attempts.last()) {
                (Next::Start(..), Some(last)) => self.guard.taken_up(&last.record),
                (first, _) => first.clone(),
            };
            self.follow_decision(index, next, at);
            at += stagger;
        }
    }

    /// Whether a node's last attempt succeeded while its supervisor was dying, by what its keeper left; that is written down then.
    fn was_done_unseen(&mut self, index: usize, state: &NodeState) -> bool {
        let Some(last) = state.attempts.last().filter(|last| last.failure.is_none()) else { return false };
        let number = last.record.number;
        let folder = self.folder.attempt_path(index, number);
        let Some(evidence) = left_evidence(&folder).filter(|evidence| evidence.is_success()) else { return false };
        if last.measured.is_none()
            && let Some((peak_allocated_bytes, peak_reserved_bytes)) = script::read_measured(&folder)
        {
            self.note_event(Event::Measured { node: index, number, peak_allocated_bytes, peak_reserved_bytes });
        }
        if last.exit.is_none() {
            let (exit, seconds) = (evidence.exit, evidence.seconds);
            self.note_event(Event::AttemptEnded { node: index, number, exit, seconds });
        }
        self.nodes[index].exit = evidence.exit;
        self.end_node(index, Outcome::Succeeded, "done, while its supervisor died".to_owned());
        true
    }

    /// The preflight and the claim; a second time where another run was admitted in between.
    fn admit_run(&mut self) -> Next {
        for _ in 0..3 {
            match self.admission.taken() {
                Ok(taken) => {
                    self.guard.room.taken_bytes = taken.bytes;
                    for run in taken.abandoned {
                        let said =
                            format!("run {run} lost its supervisor and holds memory: `tonnage stop {run}` ends it");
                        self.report(&said);
                    }
                }
                Err(error @ RunError::Damaged { .. }) if !self.guard.policy.forced => {
                    return Next::End(Outcome::Refused, error.to_string());
                }
                Err(error) => self.report(&format!("warning: {error}; other runs are not counted")),
            }
            self.guard.room.used_bytes = (self.guard.look)().map_or(0, |now| now.used_bytes);
            let Some(preflight) = self.guard.preflight() else { return self.guard.first_attempt(None) };
            let next = self.guard.first_attempt(Some(&preflight));
            if self.claim_memory(&preflight, &next) {
                // A refusal is said where it is recorded.
                if matches!(next, Next::Start(..)) {
                    self.report(&preflight.text);
                }
                self.note_event(Event::Preflight { text: preflight.text.clone(), fits: preflight.fits() });
                return next;
            }
        }
        Next::End(Outcome::Refused, "other runs were admitted to the GPU at the same time".to_owned())
    }

    /// Claims what `next` is to start with; false where another run took it in between.
    fn claim_memory(&self, preflight: &Preflight, next: &Next) -> bool {
        let verdict = match next {
            Next::Start(plan, _) if plan.predicted.is_some() => {
                preflight.instead.as_ref().filter(|_| !preflight.fits()).map(|choice| &choice.verdict)
            }
            _ => None,
        };
        let (Some(verdict), Next::Start(..)) = (verdict.or(preflight.asked.as_ref()), next) else { return true };
        let usable = if self.guard.policy.forced { u64::MAX } else { self.guard.room.usable() };
        // What fits tightly may be more than there is: its caches give back what they must.
        let needed = verdict.total_bytes.saturating_add(self.guard.room.correction.offset_bytes);
        // A ledger that cannot be written promises nothing to anybody.
        self.or_warn(self.admission.claim(needed.min(self.guard.room.available()), usable)).is_none_or(|c| c.is_ok())
    }

    /// Watches until every node has ended.
    fn watch_nodes(&mut self, notices: &Receiver<Notice>) -> ResultRecord {
        let mut next_tick = Instant::now();
        while !self.nodes.iter().all(|node| matches!(node.stage, Stage::Ended(_))) {
            self.start_due();
            match notices.recv_timeout(self.time_to_next(next_tick)) {
                Ok(notice) => self.on_notice(notice),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= next_tick {
                self.tick_nodes();
                next_tick = Instant::now() + TICK;
            }
        }
        self.run_result()
    }

    /// Until the next tick, or the next start that is due.
    fn time_to_next(&self, next_tick: Instant) -> Duration {
        let starts = self.nodes.iter().filter_map(|node| match node.stage {
            Stage::Waiting(at, _) => Some(at),
            _ => None,
        });
        let first = starts.min().map_or(next_tick, |at| at.min(next_tick));
        first.saturating_duration_since(Instant::now())
    }

    /// Whether a node's time has come, or the memory that it waits for is free.
    fn is_due(&self, stage: &Stage) -> bool {
        let Stage::Waiting(at, plan) = stage else { return false };
        let is_free =
            |bytes: u64| (self.guard.look)().is_some_and(|now| now.total_bytes.saturating_sub(now.used_bytes) >= bytes);
        *at <= Instant::now() || plan.awaits_bytes.is_some_and(is_free)
    }

    fn start_due(&mut self) {
        for index in 0..self.nodes.len() {
            if !self.is_due(&self.nodes[index].stage) {
                continue;
            }
            if let Stage::Waiting(_, plan) = std::mem::take(&mut self.nodes[index].stage) {
                self.start_attempt(index, *plan);
            }
        }
    }

    fn tick_nodes(&mut self) {
        self.ticks += 1;
        let mut events = Vec::new();
        for node in &mut self.nodes {
            let Stage::Running(running) = &mut node.stage else { continue };
            events.extend(running.tick_second(self.guard.policy));
            if let Some(sample) = running.take_sample(self.ticks) {
                // Samples are for looking back; one that is lost is not missed.
                let _ = self.folder.sample(&sample);
            }
        }
        events.into_iter().for_each(|event| self.note_event(event));
    }
}
