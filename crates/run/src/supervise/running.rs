//! [`Running`]: an attempt while its process lives, and what is asked of it every second.

use std::time::{Duration, Instant};

use tonnage_core::progress::Progress;
use tonnage_core::record::{Event, ExitRecord, Policy, Sample};

use super::cgroup;
use super::saved::Saved;
use crate::clock::now_ms;
use crate::guard::ExitEvidence;
use crate::launch::{Process, tree_usage, waits_for};
use crate::log::LogTail;

/// Seconds between samples.
const SAMPLE_SECONDS: u64 = 15;
/// Seconds between two entries of progress.
const PROGRESS_SECONDS: u64 = 15;
/// What a keeper is given to end its command, once it was told to.
const KEEPERS_TIME: Duration = Duration::from_secs(5);
/// CPU seconds a second below which processes do no work: a loop that polls a lock takes less.
const IDLE: f64 = 0.02;

/// An attempt while its process lives.
pub(super) struct Running {
    pub process: Process,
    pub number: u32,
    pub node: usize,
    pub pid: Option<u32>,
    started: Instant,
    healthy: bool,
    ending: Option<Ending>,
    stalled: Option<String>,
    is_probed: bool,
    oom_kills: u64,
    work: (f64, Instant),
    busy: Instant,
    written: Option<(Progress, Instant)>,
    saved: Saved,
}

/// What was asked to end.
struct Ending {
    by: Instant,
    killed: bool,
}

impl Running {
    pub fn new(process: Process, node: usize, number: u32, saved: Saved) -> Self {
        let now = Instant::now();
        Self {
            process,
            number,
            node,
            pid: None,
            started: now,
            healthy: false,
            ending: None,
            stalled: None,
            is_probed: false,
            oom_kills: cgroup::oom_kills(),
            work: (0.0, now),
            busy: now,
            written: None,
            saved,
        }
    }

    /// Asks it to end by `signal`, and ends it when `grace` is over.
    pub fn ask_to_end(&mut self, signal: i32, grace: Duration) {
        self.process.send_signal(signal);
        let by = Instant::now() + grace;
        self.ending = Some(Ending { by, killed: false });
    }

    /// Ends it now.
    pub fn kill_all(&mut self) {
        self.process.end_within(Duration::ZERO);
        self.ending = Some(Ending { by: Instant::now(), killed: true });
    }

    /// What a second brought.
    pub fn tick_second(&mut self, policy: &Policy) -> Vec<Event> {
        self.process.wake_keepers();
        match &self.ending {
            Some(ending) if !ending.killed && Instant::now() >= ending.by => self.kill_all(),
            // A keeper that is stopped (SIGSTOP) does not hear that it should end its command.
            Some(ending) if ending.killed && ending.by.elapsed() > KEEPERS_TIME => self.process.end_from_above(),
            _ => {}
        }
        self.saved.tick_second();
        let mut events = Vec::new();
        events.extend(self.health_event(policy));
        events.extend(self.progress_event());
        events.extend(self.stall_event(policy));
        self.probe_gpu(policy);
        events
    }

    /// Ends a probe that has made its steps; as by Ctrl-C, so that Python ends in order.
    fn probe_gpu(&mut self, policy: &Policy) {
        let step = self.current_progress().map_or(0, |progress| progress.step);
        let is_over = policy.max_run_seconds.is_some_and(|limit| self.started.elapsed().as_secs() >= limit);
        if !self.is_probed && (is_over || policy.stop_after_steps.is_some_and(|steps| step >= steps)) {
            self.is_probed = true;
            self.ask_to_end(nix::libc::SIGINT, Duration::from_secs(policy.grace_seconds));
        }
    }

    /// Past its start-up, or with a step behind it, it runs.
    fn health_event(&mut self, policy: &Policy) -> Option<Event> {
        let past = self.started.elapsed() >= Duration::from_secs(policy.startup_seconds);
        let stepped = self.current_progress().is_some_and(|progress| progress.step > 0);
        if self.healthy || !(past || stepped) {
            return None;
        }
        self.healthy = true;
        Some(Event::Healthy { node: self.node, number: self.number })
    }

    /// Where the training is: by its log, else by what it saved.
    fn current_progress(&self) -> Option<Progress> {
        self.process.output.progress().or_else(|| self.saved.progress())
    }

    fn progress_event(&mut self) -> Option<Event> {
        let now = self.current_progress()?;
        let due =
            |(then, at): (Progress, Instant)| then != now && at.elapsed() >= Duration::from_secs(PROGRESS_SECONDS);
        if !self.written.is_none_or(due) {
            return None;
        }
        self.written = Some((now, Instant::now()));
        Some(Event::Progress { node: self.node, progress: now })
    }

    /// Neither a byte of output nor work for so long: it hangs, and is ended.
    fn stall_event(&mut self, policy: &Policy) -> Option<Event> {
        let limit = Duration::from_secs(policy.stall_seconds?);
        let silent = self.process.output.silent_for();
        let look = (limit / 4).min(Duration::from_secs(SAMPLE_SECONDS));
        if self.stalled.is_some() || silent < look {
            self.busy = Instant::now();
            return None;
        }
        if self.work.1.elapsed() >= look {
            self.look_at_work();
        }
        if self.busy.elapsed() < limit {
            return None;
        }
        let state = waits_for(self.process.root());
        self.stalled = Some(state.clone());
        self.ask_to_end(nix::libc::SIGTERM, Duration::from_secs(policy.grace_seconds));
        Some(Event::Stalled { node: self.node, seconds: silent.as_secs(), state })
    }

    /// CPU time of the processes since the last look; a GPU at work keeps the thread busy that feeds it.
    fn look_at_work(&mut self) {
        let (then, at) = self.work;
        let (now, _) = tree_usage(self.process.root());
        if (now - then) / at.elapsed().as_secs_f64() > IDLE {
            self.busy = Instant::now();
        }
        self.work = (now, Instant::now());
    }

    /// A sample, when one is due.
    pub fn take_sample(&self, ticks: u64) -> Option<Sample> {
        if !ticks.is_multiple_of(SAMPLE_SECONDS) {
            return None;
        }
        let (cpu_seconds, resident_bytes) = tree_usage(self.process.root());
        let step = self.current_progress().map(|progress| progress.step);
        Some(Sample { at_ms: now_ms(), node: self.node, cpu_seconds, resident_bytes, step })
    }

    /// Waits for the last output, and ends who holds it; what is known of the end.
    pub fn finish_attempt(
        mut self,
        exit: ExitRecord,
        policy: &Policy,
        end_orphans: &dyn Fn(),
    ) -> (LogTail, ExitEvidence) {
        let seconds = self.started.elapsed().as_secs_f64();
        let oom_kills = cgroup::oom_kills().saturating_sub(self.oom_kills);
        let (stalled, is_probed) = (self.stalled.clone(), self.is_probed);
        let output = self.process.finish_output(end_orphans);
        self.saved.look_for_saved();
        let progress = output.progress().or_else(|| self.saved.progress());
        let steps_made = output.steps_made().or_else(|| self.saved.steps_made());
        let step = progress.map(|progress| progress.step);
        let startup_seconds = policy.startup_seconds;
        (
            output.tail(),
            ExitEvidence { exit, seconds, startup_seconds, step, steps_made, progress, stalled, oom_kills, is_probed },
        )
    }
}
