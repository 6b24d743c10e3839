//! How a run ended on SLURM, written down as of one that ended here: into the suite's journal, and into the records that
//! `tonnage report` reads.

use std::path::{Path, PathBuf};

use tonnage_core::failure::Class;
use tonnage_core::record::{ExitRecord, FailureClass, FailureRecord, Outcome};
use tonnage_experiment::record::{End, Record};
use tonnage_run::RunError;
use tonnage_run::guard::{ExitEvidence, classify};
use tonnage_run::log::LogTail;

use super::accounts::end_of;
use super::evidence::{Evidence, Start};
use super::state::JobState;
use super::{job_name, log_name};
use crate::folder::SuiteFolder;
use crate::journal::{Batch, Ended, Event};
use crate::measured::points_of_logs;
use crate::plan::Plan;
use crate::records::{append, has_points};
use crate::runner::word;

/// Bytes of a log's end in which a cause is looked for: tracebacks of all ranks and more.
const LOG_BYTES: u64 = 512 << 10;
/// Seconds within which a failure is one to start.
const STARTUP_SECONDS: u64 = 60;

/// A run of which nothing more comes.
pub(super) struct Finding<'a> {
    /// The suite's plan, by which its newest submission was made.
    pub plan: &'a Plan,
    /// The batch's name.
    pub name: &'a str,
    /// The batch.
    pub batch: &'a Batch,
    /// The run's place in the array.
    pub task: u64,
    /// The run.
    pub id: &'a str,
    /// What its script left.
    pub evidence: &'a Evidence,
    /// What SLURM says of its end, where its script said nothing.
    pub state: Option<JobState>,
    /// Seconds of its last start, by SLURM.
    pub seconds: Option<f64>,
}

/// Writes down how a run ended.
///
/// # Errors
/// When the suite's folder cannot be written.
pub(super) fn harvest(folder: &SuiteFolder, finding: &Finding<'_>) -> Result<(), RunError> {
    let logs = finding.logs(&folder.path);
    let end = finding.end(&logs);
    let path = folder.path.join("runs").join(finding.id).join("records.jsonl");
    let lines = finding.records(&path, &logs, &end);
    append(&path, &lines).map_err(|error| RunError::file(&path, error))?;
    folder.journal.append(Event::Ended { id: finding.id.to_owned(), end })
}

impl Finding<'_> {
    /// The logs of its jobs, of the links in their order.
    fn logs(&self, folder: &Path) -> Vec<PathBuf> {
        let of = |(number, job): (u32, u64)| {
            let name = log_name(&job_name(&self.plan.suite, self.name, number), job, self.task);
            folder.join("slurm").join("logs").join(name)
        };
        self.batch.links.iter().filter_map(|link| Some(of((link.number, link.job?)))).collect()
    }

    fn records(&self, path: &Path, logs: &[PathBuf], end: &Ended) -> String {
        let mut lines = String::new();
        if !has_points(path) {
            let points = points_of_logs(&self.batch.metrics, logs, self.plan, self.id);
            points.into_iter().for_each(|point| lines.push_str(&Record::Point(point).line()));
        }
        let record = End {
            outcome: word(end.outcome).to_owned(),
            reason: end.reason.clone(),
            attempts: end.attempts,
            seconds: Some(end.seconds),
            lost_seconds: Some(end.lost_seconds),
            ..End::default()
        };
        lines.push_str(&Record::End(record).line());
        lines
    }

    fn end(&self, logs: &[PathBuf]) -> Ended {
        let starts = &self.evidence.starts;
        let seconds: Vec<f64> = (0..starts.len()).map(|at| self.seconds_of(at, logs)).collect();
        let failed = |start: &Start| !start.goes_on && start.code != Some(0);
        let lost = starts.iter().zip(&seconds).filter(|(start, _)| failed(start)).map(|(_, seconds)| seconds);
        let (outcome, class, reason, at_start) = self.outcome(logs);
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
            configuration: self.configuration(),
            ..Ended::default()
        }
    }

    fn configuration(&self) -> String {
        let run = self.plan.runs.iter().find(|run| run.id == self.id);
        run.map(|run| self.plan.configuration(run).name.clone()).unwrap_or_default()
    }

    /// Seconds of a start: by its own lines; of the last one by SLURM, or by when its log was written last. Of an earlier one whose
    /// end nobody wrote nothing is known, and nothing is counted.
    fn seconds_of(&self, at: usize, logs: &[PathBuf]) -> f64 {
        let start = &self.evidence.starts[at];
        if let Some(ended) = start.ended {
            return ended - start.began;
        }
        if at + 1 < self.evidence.starts.len() {
            return 0.0;
        }
        let written = logs.iter().filter_map(|log| log.metadata().ok()?.modified().ok()).max();
        let written = written.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let by_log = written.map_or(0.0, |written| (written.as_secs_f64() - start.began).max(0.0));
        self.seconds.unwrap_or(by_log)
    }

    fn outcome(&self, logs: &[PathBuf]) -> (Outcome, Option<FailureClass>, String, bool) {
        if self.evidence.is_done {
            return (Outcome::Succeeded, None, String::new(), false);
        }
        let last = self.evidence.last_of(self.name);
        let Some(last) = last else { return self.never_began() };
        if last.goes_on {
            let reason = "it saved ahead of its limit, and no job goes on with it".to_owned();
            return (Outcome::Stopped, Some(Class::TimeLimit.into()), reason, false);
        }
        let failure = self.failure(last, logs);
        let said = failure.evidence.first().cloned().unwrap_or_default();
        let place = format!("job {} on {}", last.job, last.node);
        let (outcome, class) = match (self.state, last.ended.is_some()) {
            // It was asked to end, and ended: by whom, its log says.
            _ if last.was_asked => asked(failure.class.clone()),
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

    /// A run whose command never began.
    fn never_began(&self) -> (Outcome, Option<FailureClass>, String, bool) {
        let (outcome, class, why) = match self.state {
            None => (Outcome::Stopped, None, "SLURM has it no more, and it never began"),
            // Its script ended before it could write a line.
            Some(state) => {
                let (outcome, class) = state.outcome();
                (outcome, class.map(FailureClass::from), state.words())
            }
        };
        (outcome, class.or((outcome == Outcome::Failed).then_some(FailureClass::ProgramError)), why.to_owned(), true)
    }

    /// Why it failed, by the end of its log, as of a run that failed here.
    fn failure(&self, last: &Start, logs: &[PathBuf]) -> FailureRecord {
        let log = logs.iter().rev().find_map(|log| end_of(log, LOG_BYTES).ok()).unwrap_or_default();
        // A job that goes on in a log says in it how it began: only what stands behind that is of its last start.
        let begun = log.rfind(BEGIN_WORDS).map_or(log.as_str(), |at| &log[at..]);
        let tail = LogTail { stdout: String::new(), stderr: begun.to_owned() };
        let seconds = last.ended.map_or(f64::INFINITY, |ended| ended - last.began);
        let exit = ExitRecord { code: last.code, signal: None };
        classify(&tail, &ExitEvidence { exit, seconds, startup_seconds: STARTUP_SECONDS, ..ExitEvidence::default() })
    }
}

/// How a start's own line begins in its log.
pub(crate) const BEGIN_WORDS: &str = "tonnage: begins: ";

/// Somebody asked it to end: whoever ran out of time, or of nodes, is told so in its log.
fn asked(class: FailureClass) -> (Outcome, FailureClass) {
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
