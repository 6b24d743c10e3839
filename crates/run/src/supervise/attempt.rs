//! An attempt's way from its start to what it leaves: injected with its batch, started, followed, ended, classified.

use std::path::Path;
use std::time::Duration;

use tonnage_core::failure::Class;
use tonnage_core::record::{AttemptRecord, Event, ExitRecord, FailureClass, FailureRecord, Outcome, of_node};
use tonnage_secrets::hide_in_text;

use super::node::{Node, Stage};
use super::running::Running;
use super::saved::Saved;
use super::{Supervisor, script};
use crate::RunError;
use crate::adapter::{Injection, allocator_environment, find_torch, inject};
use crate::guard::{AttemptPlan, ExitEvidence, classify_failure};
use crate::launch::{Identity, Notice, Process, Screen, Start};

/// Keepers that have reported an end, or were killed, are dead within moments.
const KEEPERS_END: Duration = Duration::from_secs(5);

/// What an attempt is started with that no record holds.
struct Unrecorded {
    argv: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Supervisor<'_> {
    /// Starts a node's next attempt.
    pub(super) fn start_attempt(&mut self, index: usize, plan: AttemptPlan) {
        let number = self.nodes[index].attempts.len() as u32 + 1;
        // Without a folder there are no logs; the job runs all the same.
        let made = self.or_warn(self.folder.attempt(index, number));
        let folder = made.unwrap_or_else(|| self.folder.attempt_path(index, number));
        let (attempt, secret) = match self.injected_command(index, number, plan, &folder) {
            Ok(injected) => injected,
            Err(error) => return self.cannot_start(index, &error.to_string()),
        };
        let record = self.node_record(index);
        self.note_event(Event::AttemptStarted { attempt: attempt.clone() });
        let name = record.map(|record| record.name.clone()).filter(|name| !name.is_empty());
        let screen = match name {
            _ if !self.context.on_screen => Screen::Dark,
            Some(name) => Screen::Labelled(name),
            None => Screen::Plain,
        };
        let argv = secret.argv;
        let saved = Saved::new(self.guard.policy.checkpoints.as_ref().map(|at| Path::new(&self.run().folder).join(at)));
        let started = Process::start_guardian(Start {
            argv: &argv,
            environment: &[attempt.environment.as_slice(), &secret.environment].concat(),
            folder: Path::new(&self.run().folder),
            logs: folder,
            grace: Duration::from_secs(self.guard.policy.grace_seconds),
            screen,
            notices: self.sender.clone(),
            node: index,
        });
        self.nodes[index].attempts.push(attempt);
        match started {
            Ok(process) => {
                self.nodes[index].stage = Stage::Running(Box::new(Running::new(process, index, number, saved)));
            }
            Err(error) => self.cannot_start(index, &error.to_string()),
        }
    }

    /// The record of an attempt, its files written into `folder`, and what the record does not hold.
    fn injected_command(
        &self,
        index: usize,
        number: u32,
        plan: AttemptPlan,
        folder: &Path,
    ) -> Result<(AttemptRecord, Unrecorded), RunError> {
        let injection = Injection {
            batch: plan.batch,
            changes: &plan.changes,
            resume_from: plan.resume_from.as_deref(),
            node: self.node_record(index),
            job: self.run().job.as_ref(),
            attempt: number,
            folder: folder.to_owned(),
        };
        let injected = inject(&self.run().command, &injection)?;
        let mut environment = injected.environment;
        let now = std::env::var("PYTORCH_CUDA_ALLOC_CONF").or_else(|_| std::env::var("PYTORCH_ALLOC_CONF"));
        environment.extend(allocator_environment(&plan.changes, &now.unwrap_or_default(), find_torch(&injected.argv)));
        let attempt = AttemptRecord {
            number,
            node: index,
            argv: injected.argv,
            environment,
            batch: plan.batch,
            changes: plan.changes,
            predicted: plan.predicted,
            resume_from: plan.resume_from,
            reason: plan.reason,
        };
        let prepared = script::prepare_script(self.context.root, folder, self.run(), &attempt)?;
        for warning in injected.warning.into_iter().chain(prepared.warnings) {
            self.report(&format!("warning: {warning}"));
        }
        let argv = self.revealed_words(&attempt.argv)?;
        Ok((attempt, Unrecorded { argv, environment: prepared.environment }))
    }

    /// A node whose next attempt cannot even be tried.
    fn cannot_start(&mut self, index: usize, reason: &str) {
        self.report(&of_node(self.run(), index, reason));
        self.end_node(index, Outcome::Failed, reason.to_owned());
    }

    /// The words with the secrets that no record holds.
    fn revealed_words(&self, argv: &[String]) -> Result<Vec<String>, RunError> {
        argv.iter().map(|word| self.context.secrets.reveal_in(word).map_err(RunError::Secret)).collect()
    }

    pub(super) fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Started { node, pid, keeper } => {
                if let Some(Stage::Running(running)) = self.nodes.get_mut(node).map(|node| &mut node.stage) {
                    running.pid = Some(pid);
                    running.process.kept_by(keeper);
                    let number = running.number;
                    let began = Identity::of(pid.cast_signed()).map_or(0, |process| process.began);
                    self.note_event(Event::ProcessStarted { node, number, pid, began });
                }
            }
            Notice::NotStarted { node, reason } => self.not_started(node, &reason),
            Notice::Ended { node, exit } => self.attempt_ended(node, exit),
            Notice::Signal(signal) => self.stop_all(signal),
        }
    }

    fn not_started(&mut self, index: usize, reason: &str) {
        let word = self.nodes[index].attempts.last().and_then(|attempt| attempt.argv.first()).cloned();
        let reason = reason.split(" (os error").next().unwrap_or_default();
        let reason = format!("cannot start `{}`: {reason}", word.unwrap_or_default());
        if let Stage::Running(running) = std::mem::take(&mut self.nodes[index].stage) {
            let number = running.number;
            let exit = ExitRecord { code: Some(127), signal: None };
            running.finish_attempt(exit, self.guard.policy, &|| {});
            self.note_event(Event::AttemptEnded { node: index, number, exit, seconds: 0.0 });
            let (class, at_start) = (FailureClass::NotStarted, true);
            let failure = FailureRecord { class, at_start, evidence: vec![reason.clone()], ..FailureRecord::default() };
            self.note_event(Event::Failed { node: index, number, failure });
        }
        self.end_node(index, Outcome::Failed, reason);
    }

    /// A process and all it started are gone.
    fn attempt_ended(&mut self, index: usize, exit: ExitRecord) {
        let Some(node) = self.nodes.get_mut(index) else { return };
        if !matches!(node.stage, Stage::Running(_)) {
            return;
        }
        let Stage::Running(running) = std::mem::take(&mut node.stage) else { return };
        let (number, leader) = (running.number, running.pid);
        let keepers: Vec<i32> = running.process.keeper_pids().collect();
        let end_orphans = || self.end_orphans(leader, &keepers);
        end_orphans();
        let (tail, evidence) = running.finish_attempt(exit, self.guard.policy, &end_orphans);
        let seconds = evidence.seconds;
        self.nodes[index].exit = exit;
        self.note_what_it_left(index, number, &evidence);
        self.note_event(Event::AttemptEnded { node: index, number, exit, seconds });
        if self.stopping.is_some() || self.warned {
            return self.end_node(index, Outcome::Stopped, "asked to stop".to_owned());
        }
        if evidence.is_probed || (exit.is_success() && evidence.stalled.is_none()) {
            return self.end_node(index, Outcome::Succeeded, "done".to_owned());
        }
        let failure = self.name_failure(index, classify_failure(&tail, &evidence));
        self.note_event(Event::Failed { node: index, number, failure: failure.clone() });
        self.nodes[index].lost_seconds += seconds;
        self.nodes[index].failures.push(failure);
        self.decide_next(index);
    }

    /// A failure as it is recorded: a neighbour named where none of the run's own nodes has the memory, secrets hidden.
    fn name_failure(&self, index: usize, failure: FailureRecord) -> FailureRecord {
        let alone = self.nodes.iter().all(|node| !matches!(node.stage, Stage::Running(_)));
        let last = self.nodes[index].attempts.last().filter(|_| alone);
        let mut failure = match last {
            Some(last) => self.guard.with_neighbour(failure, last),
            None => failure,
        };
        if failure.class == Class::Neighbour.into() && !alone && self.are_own(&failure) {
            failure.class = Class::GpuMemory.into();
            failure.evidence.push("the other processes are this run's own nodes".to_owned());
        }
        for text in &mut failure.evidence {
            *text = hide_in_text(&self.context.secrets.hide_in(text));
        }
        failure
    }

    /// Whether what a message counts as other processes' is no more than the run's nodes were predicted to need.
    fn are_own(&self, failure: &FailureRecord) -> bool {
        let others = failure.numbers.iter().find(|(name, _)| name == "other_processes").map_or(0, |(_, bytes)| *bytes);
        let predicted = self.nodes.iter().filter_map(|node| node.attempts.last()?.predicted).next();
        predicted.is_some_and(|predicted| others <= predicted.corrected_bytes)
    }

    fn note_what_it_left(&self, node: usize, number: u32, evidence: &ExitEvidence) {
        if let Some(progress) = evidence.progress {
            self.note_event(Event::Progress { node, progress });
        }
        let folder = self.folder.attempt_path(node, number);
        for (micro_batch_size, gradient_accumulation_steps) in script::read_rebatched(&folder) {
            self.note_event(Event::Rebatched { node, number, micro_batch_size, gradient_accumulation_steps });
        }
        if let Some((peak_allocated_bytes, peak_reserved_bytes)) = script::read_measured(&folder) {
            self.note_event(Event::Measured { node, number, peak_allocated_bytes, peak_reserved_bytes });
        }
    }

    /// Ends what a keeper that was killed itself left: orphans come to the supervisor. A keeper that lived left nothing.
    fn end_orphans(&self, leader: Option<u32>, own_keepers: &[i32]) {
        // A process that is killed closes its files first and gives its children away later: what still hangs below a dying
        // keeper would be taken for the keeper's own, and outlive it.
        crate::launch::wait_dead(own_keepers, KEEPERS_END);
        let own = std::process::id().cast_signed();
        let mut keepers: Vec<i32> = self.nodes.iter().flat_map(Node::keepers).collect();
        keepers.extend_from_slice(own_keepers);
        if crate::launch::descendants(own, &keepers).is_empty() {
            return;
        }
        let grace = Duration::from_secs(self.guard.policy.grace_seconds);
        crate::launch::end_tree(own, leader.map(u32::cast_signed), &keepers, grace);
    }
}
