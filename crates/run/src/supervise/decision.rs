//! What follows an end: the guard's decision is done, said and recorded, until there is a result.

use std::time::{Duration, Instant};

use tonnage_core::record::{CostRecord, Event, ExitRecord, Outcome, ResultRecord, of_node};
use tonnage_core::units::Bytes;

use super::Supervisor;
use super::node::{Node, Stage};
use crate::guard::{AttemptPlan, Next};
use crate::launch::catches_signal;

impl Supervisor<'_> {
    pub(super) fn decide_next(&mut self, index: usize) {
        let node = &self.nodes[index];
        let late = self.guard.policy.max_seconds.filter(|limit| self.began.elapsed().as_secs() >= *limit);
        let correction = self.guard.room.correction.clone();
        let next = match late {
            Some(limit) => Next::End(Outcome::Failed, format!("the budget of {limit} s is spent")),
            None => self.guard.after_failure(&node.attempts, &node.failures),
        };
        if self.guard.room.correction != correction {
            let correction = self.guard.room.correction.clone();
            self.report(&of_node(self.run(), index, &correction.evidence));
            self.note_event(Event::Corrected { correction });
        }
        self.follow_decision(index, next, Instant::now());
    }

    /// Does what was decided about a node, not before `at`.
    pub(super) fn follow_decision(&mut self, index: usize, next: Next, at: Instant) {
        match next {
            Next::Start(plan, seconds) => {
                if !self.nodes[index].attempts.is_empty() {
                    let text = decision_words(&plan, seconds);
                    self.report(&of_node(self.run(), index, &text));
                    self.note_event(Event::Decided { node: index, text });
                }
                self.nodes[index].stage = Stage::Waiting(at + Duration::from_secs(seconds), plan);
            }
            Next::End(outcome, reason) => {
                // What is true of all nodes is said once.
                let is_its_own = !self.nodes[index].attempts.is_empty();
                if is_its_own {
                    self.report(&of_node(self.run(), index, &reason));
                } else if index == 0 || self.nodes[index - 1].reason != reason {
                    self.report(&reason);
                }
                self.end_node(index, outcome, reason);
            }
        }
    }

    pub(super) fn end_node(&mut self, index: usize, outcome: Outcome, reason: String) {
        self.nodes[index].stage = Stage::Ended(outcome);
        self.nodes[index].reason.clone_from(&reason);
        self.note_event(Event::NodeEnded { node: index, outcome, reason });
    }

    /// A scheduler's warning: commands that take the signal get it, and end when they have saved; others are asked to end.
    fn warn_all(&mut self, signal: i32) {
        let takes = |node: &Node| match &node.stage {
            Stage::Running(running) => running.pid.is_some_and(|pid| catches_signal(pid, signal)),
            _ => true,
        };
        if !self.nodes.iter().all(takes) {
            return self.stop_all(nix::libc::SIGTERM);
        }
        self.warned = true;
        self.report(&format!("warned by {}: passed on; what ends now is not started again", name_of(signal)));
        for index in 0..self.nodes.len() {
            match &mut self.nodes[index].stage {
                Stage::Running(running) => running.process.send_signal(signal),
                Stage::Waiting(..) => self.end_node(index, Outcome::Stopped, "asked to stop".to_owned()),
                _ => continue,
            }
            self.note_event(Event::Signalled { node: index, signal: name_of(signal) });
        }
    }

    /// The first time processes are asked, the second time they are ended.
    pub(super) fn stop_all(&mut self, signal: i32) {
        if matches!(signal, nix::libc::SIGUSR1 | nix::libc::SIGUSR2) && self.stopping.is_none() {
            return self.warn_all(signal);
        }
        let again = self.stopping.replace(signal).is_some();
        let grace = Duration::from_secs(self.guard.policy.grace_seconds);
        self.report(if again { "ending all processes" } else { "asking all processes to end; once more ends them" });
        // A terminal that is gone asks for no more than a polite end.
        let sent = if signal == nix::libc::SIGINT { signal } else { nix::libc::SIGTERM };
        for index in 0..self.nodes.len() {
            match &mut self.nodes[index].stage {
                Stage::Running(running) if again => running.kill_all(),
                Stage::Running(running) => running.ask_to_end(sent, grace),
                Stage::Waiting(..) => self.end_node(index, Outcome::Stopped, "asked to stop".to_owned()),
                _ => continue,
            }
            self.note_event(Event::Signalled { node: index, signal: name_of(signal) });
        }
    }

    /// A run is as good as the worst of its nodes.
    pub(super) fn run_result(&self) -> ResultRecord {
        let is = |wanted: Outcome| move |node: &&Node| matches!(node.stage, Stage::Ended(outcome) if outcome == wanted);
        let order = [Outcome::Refused, Outcome::Failed, Outcome::Stopped];
        let place = |outcome: Outcome| self.nodes.iter().position(|node| is(outcome)(&node));
        let worst = order.into_iter().find_map(|outcome| Some((outcome, place(outcome)?)));
        let (outcome, at) = worst.unwrap_or((Outcome::Succeeded, 0));
        let node = self.nodes.get(at);
        // What is true of all nodes is no single one's.
        let reason = |node: &Node| match node.attempts.is_empty() || outcome == Outcome::Succeeded {
            true => node.reason.clone(),
            false => of_node(self.run(), at, &node.reason),
        };
        ResultRecord {
            outcome,
            reason: node.map_or_else(String::new, reason),
            exit: node.map_or_else(ExitRecord::default, |node| node.exit),
            cost: CostRecord {
                seconds: self.began.elapsed().as_secs_f64(),
                lost_seconds: self.nodes.iter().map(|node| node.lost_seconds).sum(),
                attempts: self.nodes.iter().map(|node| node.attempts.len() as u32).sum(),
            },
        }
    }
}

fn name_of(signal: i32) -> String {
    nix::sys::signal::Signal::try_from(signal).map_or("a signal", |signal| signal.as_str()).to_owned()
}

/// A decision in a sentence.
fn decision_words(plan: &AttemptPlan, seconds: u64) -> String {
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
    if let Some(bytes) = plan.awaits_bytes {
        text.push_str(&format!(", as soon as {} are free, and in {seconds} s at the latest", Bytes(bytes)));
    } else if seconds > 0 {
        text.push_str(&format!(", in {seconds} s"));
    }
    text
}
