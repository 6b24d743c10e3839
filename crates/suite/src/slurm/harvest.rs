//! How a run ended on SLURM, written down as of one that ended here: into the suite's journal, and into the records that
//! `tonnage report` reads.

use std::path::{Path, PathBuf};

use tonnage_core::failure::Class;
use tonnage_core::record::{ExitRecord, FailureClass, FailureRecord, Outcome};
use tonnage_experiment::record::Record;
use tonnage_run::RunError;
use tonnage_run::guard::{ExitEvidence, classify_failure};
use tonnage_run::log::LogTail;

use super::accounts::end_of;
use super::evidence::{Evidence, Start};
use super::state::JobState;
use super::{job_name, log_name};
use crate::folder::SuiteFolder;
use crate::journal::{Batch, Ended, Event};
use crate::measured::points_of_logs;
use crate::plan::{Plan, PlannedRun};
use crate::records::{append_lines, has_points, record_of_end};

/// Bytes of a log's end in which a cause is looked for: tracebacks of all ranks and more.
const LOG_BYTES: u64 = 512 << 10;
/// Seconds within which a failure is one to start.
const STARTUP_SECONDS: u64 = 60;

/// How often in a row a run that SLURM did not start is missing, and is sent again by whoever submits; then it has failed, so that a suite
/// that is submitted every hour does not ask for what never starts for ever.
const MOST_REFUSALS: u32 = 3;
/// What `srun` says where a step did not start on all of its nodes (step_launch.c, srun's `launch.c`).
const UNSTARTED: [&str; 4] = [
    "srun: error: Task launch for ",
    "srun: error: Application launch failed",
    "srun: error: Unable to create step for job",
    "srun: error: Timed out waiting for job step to start",
];

/// A run of which nothing more comes.
pub(super) struct Finding<'a> {
    /// The suite's plan, by which its newest submission was made.
    pub plan: &'a Plan,
    /// The run there; `None` where the plan no longer has it.
    pub run: Option<&'a PlannedRun>,
    /// How often in a row SLURM has not started it before.
    pub refusals: u32,
    /// The batch's name.
    pub name: &'a str,
    pub batch: &'a Batch,
    /// The run's place in the array.
    pub task: u64,
    pub id: &'a str,
    /// What its script left.
    pub evidence: &'a Evidence,
    /// What SLURM says of its end, where its script said nothing.
    pub state: Option<JobState>,
    /// Seconds of its last start, by SLURM.
    pub seconds: Option<f64>,
}

/// Writes down how a run ended in its records; what the suite's journal is to say of it.
///
/// # Errors
/// When the suite's folder cannot be written.
pub(super) fn harvest_run(folder: &SuiteFolder, finding: &Finding<'_>) -> Result<Event, RunError> {
    let logs = finding.log_files(&folder.path);
    let end = finding.ended_run(&logs);
    let path = folder.path.join("runs").join(finding.id).join("records.jsonl");
    let lines = finding.record_lines(&path, &logs, &end);
    append_lines(&path, &lines).map_err(|error| RunError::file(&path, error))?;
    Ok(Event::Ended { id: finding.id.to_owned(), end })
}

impl Finding<'_> {
    /// The logs of its jobs, of the links in their order.
    fn log_files(&self, folder: &Path) -> Vec<PathBuf> {
        let of = |(number, job): (u32, u64)| {
            let name = log_name(&job_name(&self.plan.suite, self.name, number), job, self.task);
            folder.join("slurm").join("logs").join(name)
        };
        self.batch.links.iter().filter_map(|link| Some(of((link.number, link.job?)))).collect()
    }

    fn record_lines(&self, path: &Path, logs: &[PathBuf], end: &Ended) -> String {
        let mut lines = String::new();
        if !has_points(path) {
            let points = points_of_logs(&self.batch.metrics, logs, self.plan, self.run, path);
            points.into_iter().for_each(|point| lines.push_str(&Record::Point(point).line()));
        }
        lines.push_str(&Record::End(record_of_end(end)).line());
        lines
    }

    fn ended_run(&self, logs: &[PathBuf]) -> Ended {
        let starts = &self.evidence.starts;
        let seconds: Vec<f64> = (0..starts.len()).map(|at| self.seconds_of(at, logs)).collect();
        let failed = |start: &Start| !start.goes_on && start.code != Some(0);
        let lost = starts.iter().zip(&seconds).filter(|(start, _)| failed(start)).map(|(_, seconds)| seconds);
        let (outcome, class, reason, at_start) = self.outcome_of(logs);
        Ended {
            outcome,
            reason,
            class: class.map(|class| class.name().to_owned()),
            at_start,
            // The sum of nothing is -0.0.
            seconds: seconds.iter().sum::<f64>().abs(),
            lost_seconds: match outcome {
                Outcome::Succeeded => lost.sum::<f64>().abs(),
                _ => seconds.iter().sum::<f64>().abs(),
            },
            attempts: u32::try_from(starts.len()).unwrap_or(u32::MAX),
            configuration: self.configuration_record(),
            ..Ended::default()
        }
    }

    fn configuration_record(&self) -> String {
        self.run.map(|run| self.plan.planned_of(run).name.clone()).unwrap_or_default()
    }

    /// Seconds of a start: by its own lines; of the last one by SLURM; else until its log was written last, which the next start of its job
    /// saw before it wrote there itself.
    fn seconds_of(&self, at: usize, logs: &[PathBuf]) -> f64 {
        let start = &self.evidence.starts[at];
        if let Some(ended) = start.ended {
            return ended - start.began;
        }
        let next = self.evidence.starts.get(at + 1);
        let by_slurm = if next.is_none() { self.seconds } else { None };
        let ended = match next.filter(|next| next.job == start.job) {
            Some(next) => next.log_before.map(|before| before.min(next.began)),
            None => self.log_of(start, logs).and_then(|log| written_at(log)),
        };
        by_slurm.unwrap_or_else(|| ended.map_or(0.0, |ended| (ended - start.began).max(0.0)))
    }

    /// The log that a start wrote.
    fn log_of<'l>(&self, start: &Start, logs: &'l [PathBuf]) -> Option<&'l PathBuf> {
        let name = log_name(&job_name(&self.plan.suite, self.name, start.link), job_of(&start.job)?, self.task);
        logs.iter().find(|log| log.file_name().is_some_and(|own| own == name.as_str()))
    }

    fn outcome_of(&self, logs: &[PathBuf]) -> (Outcome, Option<FailureClass>, String, bool) {
        if self.evidence.is_done {
            return (Outcome::Succeeded, None, String::new(), false);
        }
        let last = self.evidence.last_of(self.name);
        let Some(last) = last else { return self.never_began(logs) };
        if last.goes_on {
            let reason = "it saved ahead of its limit, and no job goes on with it".to_owned();
            return (Outcome::Stopped, Some(Class::TimeLimit.into()), reason, false);
        }
        let log = self.said_last(logs);
        if is_unstarted(last, &log) {
            let said = last_line(&log).unwrap_or("srun said nothing");
            let (outcome, class) = self.refused();
            return (
                outcome,
                Some(class),
                format!("SLURM did not start its command: {said} (job {} on {})", last.job, last.node),
                true,
            );
        }
        let failure = failure_record(last, &log);
        let said = failure.evidence.first().cloned().unwrap_or_default();
        let place = format!("job {} on {}", last.job, last.node);
        let (outcome, class) = match (self.state, last.ended.is_some()) {
            // It was asked to end, and ended: by whom, its log says.
            _ if last.was_asked => ended_as(failure.class.clone()),
            (_, true) => (Outcome::Failed, failure.class.clone()),
            (Some(state), false) => match state.outcome() {
                (outcome, Some(class)) => (outcome, class.into()),
                (outcome, None) => (outcome, failure.class.clone()),
            },
            (None, false) if is_found(&failure.class) => (Outcome::Failed, failure.class.clone()),
            (None, false) => (Outcome::Stopped, Class::Killed.into()),
        };
        let words = match (self.state, last.ended.is_some()) {
            (_, true) => said,
            (Some(state), false) if said.is_empty() => state.words().to_owned(),
            (Some(state), false) => format!("{}: {said}", state.words()),
            (None, false) => "SLURM has it no more, and nothing says how it ended".to_owned(),
        };
        (outcome, Some(class), format!("{words} ({place})"), failure.at_start)
    }

    /// A run whose script never came to say that it begins.
    fn never_began(&self, logs: &[PathBuf]) -> (Outcome, Option<FailureClass>, String, bool) {
        let Some(state) = self.state else {
            return (Outcome::Stopped, None, "SLURM has it no more, and it never began".to_owned(), true);
        };
        match state.outcome() {
            (outcome, Some(class)) => (outcome, Some(class.into()), state.words().to_owned(), true),
            // A node without the folder, a secret that is not there: its script ended before it wrote a line.
            (_, None) => {
                let (outcome, class) = self.refused();
                let log = self.said_last(logs);
                let said = last_line(&log).map_or_else(String::new, |said| format!(": {said}"));
                (outcome, Some(class), format!("{}, before its command began{said}", state.words()), true)
            }
        }
    }

    /// What it means that SLURM did not start a command: the run is missing, until it has happened too often.
    const fn refused(&self) -> (Outcome, FailureClass) {
        match self.refusals + 1 < MOST_REFUSALS {
            true => (Outcome::Stopped, FailureClass::NotStarted),
            false => (Outcome::Failed, FailureClass::NotStarted),
        }
    }

    /// The end of its newest log, from where its last start begins: a job that goes on in a log says in it how it began.
    fn said_last(&self, logs: &[PathBuf]) -> String {
        let log = logs.iter().rev().find_map(|log| end_of(log, LOG_BYTES).ok()).unwrap_or_default();
        let begun = log.rfind(BEGIN_WORDS).unwrap_or(0);
        log[begun..].to_owned()
    }
}

/// Why a start failed, by what it wrote, as of a run that failed here.
fn failure_record(last: &Start, log: &str) -> FailureRecord {
    let tail = LogTail { stdout: String::new(), stderr: log.to_owned() };
    let seconds = last.ended.map_or(f64::INFINITY, |ended| ended - last.began);
    let exit = ExitRecord { code: last.code, signal: None };
    classify_failure(
        &tail,
        &ExitEvidence { exit, seconds, startup_seconds: STARTUP_SECONDS, ..ExitEvidence::default() },
    )
}

/// Whether SLURM did not start its command, or not on all of its nodes.
fn is_unstarted(last: &Start, log: &str) -> bool {
    let has_failed = last.ended.is_some() && last.code != Some(0) && !last.was_asked;
    last.was_refused || has_failed && log.lines().any(|line| UNSTARTED.iter().any(|word| line.starts_with(word)))
}

/// What a log says last.
fn last_line(log: &str) -> Option<&str> {
    log.lines().rev().map(str::trim).find(|line| !line.is_empty() && !line.starts_with(BEGIN_WORDS))
}

/// The number in `7_3`.
fn job_of(job: &str) -> Option<u64> {
    job.split('_').next()?.parse().ok()
}

/// When a file was written last, in seconds since 1970.
fn written_at(log: &Path) -> Option<f64> {
    let written = log.metadata().ok()?.modified().ok()?;
    Some(written.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs_f64())
}

/// How a start's own line begins in its log.
pub(crate) const BEGIN_WORDS: &str = "tonnage: begins: ";

/// Somebody asked it to end: whoever ran out of time, or of nodes, is told so in its log.
fn ended_as(class: FailureClass) -> (Outcome, FailureClass) {
    match class {
        FailureClass::Known(Class::TimeLimit | Class::HostMemory) => (Outcome::Failed, class),
        FailureClass::Known(Class::Preempted | Class::NodeFailure) => (Outcome::Stopped, class),
        _ => (Outcome::Stopped, Class::Cancelled.into()),
    }
}

/// Whether a log says a cause, beyond how the program ended.
const fn is_found(class: &FailureClass) -> bool {
    match class {
        FailureClass::Known(class) => !matches!(
            class,
            Class::Killed | Class::Terminated | Class::Hangup | Class::Interrupted | Class::Crash | Class::Cancelled
        ),
        _ => false,
    }
}
