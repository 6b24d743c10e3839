//! Supervision: starts a run's nodes, watches them, and asks the guard what follows each end.

mod admission;
mod cgroup;
pub mod progress;
mod reclaim;
mod running;
mod script;
mod signals;

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tonnage_core::record::{
    AttemptRecord, CostRecord, Event, ExitRecord, FailureRecord, NodeRecord, Outcome, Phase, ResultRecord, RunRecord,
    RunState,
};

use crate::RunError;
use crate::adapter::{Telling, allocator_environment, find_torch, tell};
use crate::guard::{Circumstances, Guard, Next, Plan, classify};
use crate::launch::{Notice, Process, Screen, Start};
use crate::store::{Lock, RunFolder, now_ms};

use admission::Admission;
use running::Running;

/// How often nodes are looked at when nothing is heard of them.
const TICK: Duration = Duration::from_secs(1);
/// How long a look at the lock by another command may keep a supervisor from it.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Whom a run's sentences are told: what is decided, and why.
pub type Talk<'a> = dyn Fn(&str) + 'a;

/// Runs what `folder` says until it ends. Where `on_screen`, what processes write is shown.
///
/// # Errors
/// When another supervisor has the run, or its folder cannot be written.
pub fn supervise(
    folder: &RunFolder,
    root: &Path,
    guard: Guard<'_>,
    on_screen: bool,
    talk: &Talk<'_>,
) -> Result<ResultRecord, RunError> {
    let _lock = lock(folder)?;
    let (sender, notices) = channel();
    signals::take(sender.clone());
    // Orphans of a keeper that was killed come to the supervisor.
    let _ = nix::sys::prctl::set_child_subreaper(true);
    let before = folder.state();
    reclaim::reclaim(folder, &before, Duration::from_secs(guard.policy.grace_seconds))?;
    let before = folder.state();
    folder.append(Event::Supervised { pid: std::process::id() })?;
    let ranks = guard.job.as_ref().map_or(1, |job| job.spec.parallel.world_size);
    let admission = Admission::open(root, folder.run(), ranks)?;
    let mut supervisor = Supervisor {
        folder,
        root,
        guard,
        admission,
        nodes: Vec::new(),
        sender,
        on_screen,
        talk,
        stopping: None,
        began: Instant::now(),
        ticks: 0,
    };
    supervisor.prepare(&before)?;
    let result = supervisor.watch(&notices);
    supervisor.admission.release()?;
    let result = result?;
    folder.append(Event::RunEnded { result: result.clone() })?;
    Ok(result)
}

fn lock(folder: &RunFolder) -> Result<Lock, RunError> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match folder.lock()? {
            Some(lock) => return Ok(lock),
            None if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            None => return Err(RunError::Missing(format!("run {} is supervised already", folder.id()))),
        }
    }
}

struct Supervisor<'a> {
    folder: &'a RunFolder,
    root: &'a Path,
    guard: Guard<'a>,
    admission: Admission,
    nodes: Vec<Node>,
    sender: Sender<Notice>,
    on_screen: bool,
    talk: &'a Talk<'a>,
    /// The signal that asked for the end.
    stopping: Option<i32>,
    began: Instant,
    ticks: u64,
}

/// A node, with what was tried for it.
#[derive(Default)]
struct Node {
    attempts: Vec<AttemptRecord>,
    failures: Vec<FailureRecord>,
    place: Place,
    exit: ExitRecord,
    lost_seconds: f64,
    reason: String,
}

impl Node {
    /// Its keeper, while it runs.
    fn keeper(&self) -> Option<i32> {
        match &self.place {
            Place::Running(running) => Some(running.process.keeper_pid()),
            _ => None,
        }
    }
}

/// Where a node is.
#[derive(Default)]
enum Place {
    /// To be started then.
    Waiting(Instant, Box<Plan>),
    /// Running.
    Running(Box<Running>),
    /// Done.
    Ended(Outcome),
    /// On its way from one to the other.
    #[default]
    Between,
}

impl<'a> Supervisor<'a> {
    fn run(&self) -> &'a RunRecord {
        self.folder.run()
    }

    fn node_record(&self, node: usize) -> Option<&'a NodeRecord> {
        self.run().nodes.get(node)
    }

    /// Takes up what an earlier supervisor left, holds the job against the GPU, and plans each node's first attempt.
    fn prepare(&mut self, before: &RunState) -> Result<(), RunError> {
        self.guard.restore(&before.correction);
        self.guard.made_before = before.nodes.iter().map(|node| node.attempts.len() as u32).max().unwrap_or(0);
        let first = self.admit()?;
        let stagger = Duration::from_secs(self.guard.policy.stagger_seconds);
        let mut at = Instant::now();
        for (index, state) in before.nodes.iter().enumerate() {
            let mut node = Node::default();
            node.attempts.extend(state.attempts.iter().map(|attempt| attempt.record.clone()));
            node.failures.extend(state.attempts.iter().filter_map(|attempt| attempt.failure.clone()));
            self.nodes.push(node);
            if state.phase == Phase::Ended(Outcome::Succeeded) {
                self.end(index, Outcome::Succeeded, "done before".to_owned())?;
                continue;
            }
            let next = match (&first, state.attempts.last()) {
                (Next::Start(..), Some(last)) => self.guard.taken_up(&last.record),
                (first, _) => first.clone(),
            };
            self.follow(index, next, at)?;
            at += stagger;
        }
        Ok(())
    }

    /// The preflight and the claim; a second time where another run was admitted in between.
    fn admit(&mut self) -> Result<Next, RunError> {
        for _ in 0..3 {
            self.guard.room.taken_bytes = self.admission.taken()?;
            let Some(preflight) = self.guard.preflight() else { return Ok(self.guard.first(None)) };
            let next = self.guard.first(Some(&preflight));
            let judgement = match &next {
                Next::Start(plan, _) if plan.predicted.is_some() => {
                    preflight.instead.as_ref().filter(|_| !preflight.fits()).map(|choice| &choice.judgement)
                }
                _ => None,
            };
            let claimed = match (judgement.or(preflight.asked.as_ref()), &next) {
                (Some(judgement), Next::Start(..)) => {
                    let usable = if self.guard.policy.forced { u64::MAX } else { self.guard.room.usable() };
                    // What fits tightly may be more than there is: its caches give back what they must.
                    let needed = judgement.total_bytes.saturating_add(self.guard.room.correction.offset_bytes);
                    self.admission.claim(needed.min(self.guard.room.available()), usable)?
                }
                _ => Ok(()),
            };
            if claimed.is_ok() {
                (self.talk)(&preflight.text);
                self.folder.append(Event::Preflight { text: preflight.text.clone(), fits: preflight.fits() })?;
                return Ok(next);
            }
        }
        Ok(Next::End(Outcome::Refused, "other runs were admitted to the GPU at the same time".to_owned()))
    }

    /// Watches until every node has ended.
    fn watch(&mut self, notices: &Receiver<Notice>) -> Result<ResultRecord, RunError> {
        let mut next_tick = Instant::now();
        while !self.nodes.iter().all(|node| matches!(node.place, Place::Ended(_))) {
            self.start_due()?;
            match notices.recv_timeout(self.patience(next_tick)) {
                Ok(notice) => self.hear(notice)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= next_tick {
                self.tick()?;
                next_tick = Instant::now() + TICK;
            }
        }
        Ok(self.result())
    }

    /// Until the next tick, or the next start that is due.
    fn patience(&self, next_tick: Instant) -> Duration {
        let starts = self.nodes.iter().filter_map(|node| match node.place {
            Place::Waiting(at, _) => Some(at),
            _ => None,
        });
        let first = starts.min().map_or(next_tick, |at| at.min(next_tick));
        first.saturating_duration_since(Instant::now())
    }

    fn start_due(&mut self) -> Result<(), RunError> {
        for index in 0..self.nodes.len() {
            let due = matches!(&self.nodes[index].place, Place::Waiting(at, _) if *at <= Instant::now());
            if !due {
                continue;
            }
            if let Place::Waiting(_, plan) = std::mem::take(&mut self.nodes[index].place) {
                self.start(index, *plan)?;
            }
        }
        Ok(())
    }

    /// Starts a node's next attempt.
    fn start(&mut self, index: usize, plan: Plan) -> Result<(), RunError> {
        let number = self.nodes[index].attempts.len() as u32 + 1;
        let folder = self.folder.attempt(index, number)?;
        let record = self.node_record(index);
        let telling = Telling {
            batch: plan.batch,
            changes: &plan.changes,
            resume_from: plan.resume_from.as_deref(),
            node: record,
            attempt: number,
            folder: folder.clone(),
        };
        let told = tell(&self.run().command, &telling)?;
        let mut environment = told.environment;
        let now = std::env::var("PYTORCH_CUDA_ALLOC_CONF").or_else(|_| std::env::var("PYTORCH_ALLOC_CONF"));
        environment.extend(allocator_environment(&plan.changes, &now.unwrap_or_default(), find_torch(&told.argv)));
        let attempt = AttemptRecord {
            number,
            node: index,
            argv: told.argv,
            environment,
            batch: plan.batch,
            changes: plan.changes,
            predicted: plan.predicted,
            resume_from: plan.resume_from,
            reason: plan.reason,
        };
        let more = script::prepare(self.root, &folder, self.run(), &attempt)?;
        self.folder.append(Event::AttemptStarted { attempt: attempt.clone() })?;
        let name = record.map(|record| record.name.clone()).filter(|name| !name.is_empty());
        let screen = match name {
            _ if !self.on_screen => Screen::Dark,
            Some(name) => Screen::Labelled(name),
            None => Screen::Plain,
        };
        let started = Process::start(Start {
            argv: &attempt.argv,
            environment: &[attempt.environment.as_slice(), &more].concat(),
            folder: Path::new(&self.run().folder),
            logs: folder,
            grace: Duration::from_secs(self.guard.policy.grace_seconds),
            screen,
            notices: self.sender.clone(),
            node: index,
        });
        self.nodes[index].attempts.push(attempt);
        match started {
            Ok(process) => self.nodes[index].place = Place::Running(Box::new(Running::new(process, index, number))),
            Err(error) => self.end(index, Outcome::Failed, error.to_string())?,
        }
        Ok(())
    }

    fn hear(&mut self, notice: Notice) -> Result<(), RunError> {
        match notice {
            Notice::Started { node, pid } => {
                if let Some(Place::Running(running)) = self.nodes.get_mut(node).map(|node| &mut node.place) {
                    running.pid = Some(pid);
                    let number = running.number;
                    self.folder.append(Event::ProcessStarted { node, number, pid })?;
                }
                Ok(())
            }
            Notice::NotStarted { node, reason } => self.not_started(node, &reason),
            Notice::Ended { node, exit } => self.ended(node, exit),
            Notice::Signal(signal) => self.stop(signal),
        }
    }

    fn not_started(&mut self, index: usize, reason: &str) -> Result<(), RunError> {
        let word = self.nodes[index].attempts.last().and_then(|attempt| attempt.argv.first()).cloned();
        let reason = format!("cannot start `{}`: {reason}", word.unwrap_or_default());
        if let Place::Running(running) = std::mem::take(&mut self.nodes[index].place) {
            let number = running.number;
            running.finish(ExitRecord { code: Some(127), signal: None }, self.guard.policy);
            let exit = ExitRecord { code: Some(127), signal: None };
            self.folder.append(Event::AttemptEnded { node: index, number, exit, seconds: 0.0 })?;
        }
        self.end(index, Outcome::Failed, reason)
    }

    /// A process and all it started are gone.
    fn ended(&mut self, index: usize, exit: ExitRecord) -> Result<(), RunError> {
        let Some(node) = self.nodes.get_mut(index) else { return Ok(()) };
        if !matches!(node.place, Place::Running(_)) {
            return Ok(());
        }
        let Place::Running(running) = std::mem::take(&mut node.place) else { return Ok(()) };
        let (number, leader) = (running.number, running.pid);
        self.end_orphans(leader);
        let (tail, circumstances) = running.finish(exit, self.guard.policy);
        let seconds = circumstances.seconds;
        self.nodes[index].exit = exit;
        self.note_what_it_left(index, number, &circumstances)?;
        self.folder.append(Event::AttemptEnded { node: index, number, exit, seconds })?;
        if self.stopping.is_some() {
            return self.end(index, Outcome::Stopped, "asked to stop".to_owned());
        }
        if circumstances.is_probed || (exit.is_success() && !circumstances.stalled) {
            return self.end(index, Outcome::Succeeded, "done".to_owned());
        }
        let failure = classify(&tail, &circumstances);
        self.folder.append(Event::Failed { node: index, number, failure: failure.clone() })?;
        self.nodes[index].lost_seconds += seconds;
        self.nodes[index].failures.push(failure);
        self.decide(index)
    }

    fn note_what_it_left(&self, node: usize, number: u32, circumstances: &Circumstances) -> Result<(), RunError> {
        if let Some(step) = circumstances.step {
            self.folder.append(Event::Progress { node, step, total: None })?;
        }
        let Some((peak_allocated_bytes, peak_reserved_bytes)) =
            script::measured(&self.folder.attempt_path(node, number))
        else {
            return Ok(());
        };
        self.folder.append(Event::Measured { node, number, peak_allocated_bytes, peak_reserved_bytes })
    }

    /// Ends what a keeper that was killed itself left: orphans come to the supervisor. A keeper that lived left nothing.
    fn end_orphans(&self, leader: Option<u32>) {
        let own = std::process::id().cast_signed();
        let keepers: Vec<i32> = self.nodes.iter().filter_map(Node::keeper).collect();
        if crate::launch::descendants(own, &keepers).is_empty() {
            return;
        }
        let grace = Duration::from_secs(self.guard.policy.grace_seconds);
        crate::launch::end_tree(own, leader.map(u32::cast_signed), &keepers, grace);
    }

    fn decide(&mut self, index: usize) -> Result<(), RunError> {
        let node = &self.nodes[index];
        let late = self.guard.policy.max_seconds.filter(|limit| self.began.elapsed().as_secs() >= *limit);
        let correction = self.guard.room.correction.clone();
        let next = match late {
            Some(limit) => Next::End(Outcome::Failed, format!("the budget of {limit} s is spent")),
            None => self.guard.after(&node.attempts, &node.failures),
        };
        if self.guard.room.correction != correction {
            let correction = self.guard.room.correction.clone();
            (self.talk)(&correction.evidence);
            self.folder.append(Event::Corrected { correction })?;
        }
        self.follow(index, next, Instant::now())
    }

    /// Does what was decided about a node, not before `at`.
    fn follow(&mut self, index: usize, next: Next, at: Instant) -> Result<(), RunError> {
        match next {
            Next::Start(plan, seconds) => {
                if !self.nodes[index].attempts.is_empty() {
                    let text = decision(&plan, seconds);
                    (self.talk)(&text);
                    self.folder.append(Event::Decided { node: index, text })?;
                }
                self.nodes[index].place = Place::Waiting(at + Duration::from_secs(seconds), plan);
                Ok(())
            }
            Next::End(outcome, reason) => {
                // What is true of all nodes is said once.
                if index == 0 || self.nodes[index - 1].reason != reason {
                    (self.talk)(&reason);
                }
                self.end(index, outcome, reason)
            }
        }
    }

    fn end(&mut self, index: usize, outcome: Outcome, reason: String) -> Result<(), RunError> {
        self.nodes[index].place = Place::Ended(outcome);
        self.nodes[index].reason.clone_from(&reason);
        self.folder.append(Event::NodeEnded { node: index, outcome, reason })
    }

    /// The first time processes are asked, the second time they are ended.
    fn stop(&mut self, signal: i32) -> Result<(), RunError> {
        let again = self.stopping.replace(signal).is_some();
        let grace = Duration::from_secs(self.guard.policy.grace_seconds);
        let name = nix::sys::signal::Signal::try_from(signal).map_or("a signal", |signal| signal.as_str());
        (self.talk)(if again { "ending all processes" } else { "asking all processes to end; once more ends them" });
        // A terminal that is gone asks for no more than a polite end.
        let sent = if signal == nix::libc::SIGINT { signal } else { nix::libc::SIGTERM };
        for index in 0..self.nodes.len() {
            match &mut self.nodes[index].place {
                Place::Running(running) if again => running.kill(),
                Place::Running(running) => running.ask_to_end(sent, grace),
                Place::Waiting(..) => self.end(index, Outcome::Stopped, "asked to stop".to_owned())?,
                _ => continue,
            }
            self.folder.append(Event::Signalled { node: index, signal: name.to_owned() })?;
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), RunError> {
        self.ticks += 1;
        for node in &mut self.nodes {
            let Place::Running(running) = &mut node.place else { continue };
            for event in running.tick(self.guard.policy) {
                self.folder.append(event)?;
            }
            if let Some(sample) = running.sample(self.ticks) {
                self.folder.sample(&sample)?;
            }
        }
        Ok(())
    }

    /// A run is as good as the worst of its nodes.
    fn result(&self) -> ResultRecord {
        let is = |wanted: Outcome| move |node: &&Node| matches!(node.place, Place::Ended(outcome) if outcome == wanted);
        let order = [Outcome::Refused, Outcome::Failed, Outcome::Stopped];
        let worst = order.into_iter().find_map(|outcome| Some((outcome, self.nodes.iter().find(is(outcome))?)));
        let (outcome, node) = worst.map_or((Outcome::Succeeded, self.nodes.first()), |(o, node)| (o, Some(node)));
        ResultRecord {
            outcome,
            reason: node.map_or_else(String::new, |node| node.reason.clone()),
            exit: node.map_or_else(ExitRecord::default, |node| node.exit),
            cost: CostRecord {
                seconds: self.began.elapsed().as_secs_f64(),
                lost_seconds: self.nodes.iter().map(|node| node.lost_seconds).sum(),
                attempts: self.nodes.iter().map(|node| node.attempts.len() as u32).sum(),
            },
        }
    }
}

/// A decision in a sentence.
fn decision(plan: &Plan, seconds: u64) -> String {
    let mut text = plan.reason.clone();
    if let Some(batch) = &plan.batch {
        text.push_str(&format!(
            ": micro_batch_size {} x gradient_accumulation_steps {} x {} ranks = {} rows a step",
            batch.micro_batch_size, batch.gradient_accumulation_steps, batch.world_size, batch.effective_batch_size
        ));
    }
    if let Some(path) = &plan.resume_from {
        text.push_str(&format!(", from {path}"));
    }
    if seconds > 0 {
        text.push_str(&format!(", in {seconds} s"));
    }
    text
}

/// How long ago, in milliseconds, something was, for whoever shows it.
pub fn ago_ms(at_ms: u64) -> u64 {
    now_ms().saturating_sub(at_ms)
}
