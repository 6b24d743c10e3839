//! A run under its supervisor.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tonnage_core::record::{Outcome, RunState};
use tonnage_run::RunError;
use tonnage_run::secrets::Secrets;
use tonnage_run::store::RunFolder;

use super::Runner;
use crate::journal::Ended;
use crate::plan::{PlannedRun, Predicted};
use crate::records;

/// How long a supervisor may take until it has its run.
const TAKES_ITS_RUN: Duration = Duration::from_secs(10);

/// A run that was started, by this process or an earlier one.
pub(super) struct Active {
    /// Its place in the plan.
    pub at: usize,
    pub folder: RunFolder,
    pub gpus: Vec<String>,
    /// Bytes that it is promised on each.
    pub bytes: u64,
    /// Supervisors of it that died.
    pub deaths: usize,
    supervisor: Option<Child>,
    /// Whether the supervisor was ended by a signal.
    was_killed: bool,
    started: Instant,
    asked: usize,
}

impl Active {
    pub fn new(at: usize, folder: RunFolder, gpus: Vec<String>, bytes: u64) -> Self {
        Self {
            at,
            folder,
            gpus,
            bytes,
            deaths: 0,
            supervisor: None,
            was_killed: false,
            started: Instant::now(),
            asked: 0,
        }
    }

    /// Starts its supervisor, which outlives this process.
    pub fn start_run(&mut self, runner: &Runner<'_>, run: &PlannedRun, secrets: &Secrets) -> Result<(), RunError> {
        let metrics = records::begin_records(runner, run, &self.folder, &self.gpus)?;
        let path = self.folder.path().join("supervisor.log");
        let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let log = opened.map_err(|error| RunError::file(&path, error))?;
        let mut command = Command::new(&runner.options.program);
        command.arg("supervise").arg(self.folder.path()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        command.env("TONNAGE_METRICS", metrics.records).env("TONNAGE_PARAMETERS", metrics.parameters);
        command.env("TONNAGE_BEGAN_MS", self.folder.run().created_ms.to_string());
        command
            .env("TONNAGE_SUITE", &runner.plan.suite)
            .env("TONNAGE_CONFIGURATION", &runner.plan.planned_of(run).name);
        if !self.gpus.is_empty() {
            command.env("CUDA_VISIBLE_DEVICES", self.gpus.join(","));
        }
        let failed = |error: std::io::Error| RunError::Start {
            command: "tonnage supervise".to_owned(),
            reason: error.to_string(),
        };
        let mut child = command.spawn().map_err(failed)?;
        // Through a pipe: what stands in a file or on a command line is read by others.
        if let Some(mut pipe) = child.stdin.take() {
            pipe.write_all(serde_json::json!(secrets.0).to_string().as_bytes()).map_err(failed)?;
        }
        (self.supervisor, self.started, self.was_killed) = (Some(child), Instant::now(), false);
        Ok(())
    }

    /// Whether nobody supervises it any more.
    pub fn has_ended(&mut self) -> bool {
        match &mut self.supervisor {
            Some(child) => match child.try_wait() {
                Ok(None) => false,
                waited => {
                    self.was_killed = matches!(waited, Ok(Some(status)) if status.signal().is_some());
                    // Another supervisor may have had it first.
                    !self.folder.is_supervised()
                }
            },
            None => {
                !self.folder.is_supervised()
                    && (self.folder.state().result.is_some() || self.started.elapsed() > TAKES_ITS_RUN)
            }
        }
    }

    /// Whether its supervisor died before the run had a result. One that could not begin said why, and has not died.
    pub fn has_died(&self) -> bool {
        let state = self.folder.state();
        let has_begun = || state.nodes.iter().any(|node| !node.attempts.is_empty());
        state.result.is_none() && (self.was_killed || has_begun())
    }

    /// Asks its supervisor to end it: once politely, again without waiting.
    pub fn ask_to_end(&mut self, times: usize) {
        while self.asked < times.min(2) {
            self.asked += 1;
            let supervisor = self.supervisor.as_ref().map(Child::id).or_else(|| self.folder.state().supervisor);
            if let Some(pid) = supervisor.filter(|_| self.folder.is_supervised() || self.supervisor.is_some()) {
                // One that has just gone is what is wanted.
                let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM);
            }
        }
    }

    /// How it ended, by its own journal, beside what was `planned`.
    pub fn end_run(&mut self, planned: Option<&Predicted>) -> Ended {
        let log = self.folder.path().join("supervisor.log");
        of_state(&self.folder.state(), planned, &std::fs::read_to_string(log).unwrap_or_default())
    }
}

/// How a run ended that came to `state`; `log` is what its supervisor said, should it have died before it had the run.
fn of_state(state: &RunState, planned: Option<&Predicted>, log: &str) -> Ended {
    let attempts = || state.nodes.iter().flat_map(|node| &node.attempts);
    let failure = attempts().filter_map(|attempt| attempt.failure.as_ref()).next_back();
    let measured = attempts().filter(|attempt| attempt.measured.is_some()).max_by_key(|attempt| attempt.measured);
    let predicted = measured.and_then(|attempt| attempt.record.predicted);
    let is_succeeded = state.result.as_ref().is_some_and(|result| result.outcome == Outcome::Succeeded);
    // The guard may have taken another batch, which says nothing of the one that was planned.
    let is_as_planned = || {
        let peak = planned.map(|planned| planned.peak_reserved_bytes);
        attempts().all(|attempt| {
            attempt.record.predicted.map(|p| p.peak_reserved_bytes) == peak && attempt.rebatched.is_empty()
        })
    };
    let mut end = Ended {
        class: failure.map(|failure| failure.class.name().to_owned()),
        at_start: failure.is_some_and(|failure| failure.at_start && failure.step.is_none()),
        measured_bytes: measured.and_then(|attempt| attempt.measured).map(|peaks| peaks.1),
        predicted_bytes: predicted.map(|predicted| predicted.peak_reserved_bytes),
        processes: predicted.map_or(0, |predicted| predicted.processes),
        is_whole: is_succeeded && measured.is_some() && is_as_planned(),
        total_bytes: planned.map(|planned| planned.total_bytes),
        ..Ended::default()
    };
    match &state.result {
        Some(result) => {
            (end.outcome, end.reason) = (result.outcome, result.reason.clone());
            (end.seconds, end.lost_seconds, end.attempts) =
                (result.cost.seconds, result.cost.lost_seconds, result.cost.attempts);
            if result.outcome == Outcome::Succeeded {
                (end.class, end.at_start) = (None, false);
            }
        }
        None if attempts().next().is_none() => {
            let said = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
            (end.outcome, end.at_start) = (Outcome::Failed, true);
            end.reason = format!("its supervisor ended before the command was started: {said}");
        }
        None => {
            // To be taken up again, from its newest checkpoint.
            end.outcome = Outcome::Stopped;
            end.reason = "its supervisor died; run the suite again, and it goes on".to_owned();
        }
    }
    end
}
