//! Where a suite is: what is done, what runs where, what is next, and when it may be done.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tonnage_core::printable::printable;
use tonnage_core::record::{Outcome, SuiteRun, SuiteSummary};
use tonnage_core::units::Seconds;
use tonnage_report::Look;
use tonnage_report::text::wrap_text;

use crate::journal::{RunState, State, Where};
use crate::pack::packing_order;
use crate::plan::{Plan, PlannedRun};
use crate::runner::word;
use crate::slurm::{Standing, View};

/// Runs named that are next.
const NEXT: usize = 3;
/// Runs of one kind that are listed.
const MOST: usize = 8;

/// The state of a suite.
pub struct Status<'a> {
    plan: &'a Plan,
    state: &'a State,
    is_run: bool,
    now_ms: u64,
    elsewhere: Option<&'a View>,
    orphaned: usize,
}

impl<'a> Status<'a> {
    /// Of `plan` by its journal; `is_run` where a runner has it.
    pub const fn new(plan: &'a Plan, state: &'a State, is_run: bool, now_ms: u64) -> Self {
        Self { plan, state, is_run, now_ms, elsewhere: None, orphaned: 0 }
    }

    /// With where runs are that were sent to SLURM.
    pub const fn elsewhere(self, view: &'a View) -> Self {
        Self { elsewhere: Some(view), ..self }
    }

    /// With how many started runs have neither ended nor a supervisor that lives.
    pub const fn orphaned(self, orphaned: usize) -> Self {
        Self { orphaned, ..self }
    }

    /// Where a run is that was sent to SLURM; `None` where nobody was asked.
    fn standing_of(&self, id: &str) -> Option<&'a Standing> {
        self.elsewhere.and_then(|view| view.runs.get(id))
    }

    fn sent_runs(&self) -> Vec<&'a PlannedRun> {
        self.runs_where(|run| matches!(run, Where::Submitted(_)))
    }

    /// Runs on SLURM's nodes, in its queue, and of which nothing is known.
    fn sent_counts(&self) -> [usize; 3] {
        let mut counts = [0; 3];
        for run in self.sent_runs() {
            counts[match self.standing_of(&run.id) {
                Some(Standing::Running { .. }) => 0,
                Some(Standing::Queued { .. }) => 1,
                Some(Standing::Unknown { .. }) | None => 2,
            }] += 1;
        }
        counts
    }

    /// What SLURM says, in lines.
    fn sent_lines(&self) -> Vec<String> {
        let (mut lines, mut unknown) = (Vec::new(), BTreeMap::<&str, usize>::new());
        if let Some(why) = self.elsewhere.and_then(|view| view.silence.as_ref()) {
            lines.push(format!("! SLURM does not answer, and nothing is known of what was sent: {}", printable(why)));
        }
        let (mut shown, mut reasons) = (0, BTreeMap::<&str, usize>::new());
        for run in self.sent_runs() {
            match self.standing_of(&run.id) {
                Some(Standing::Running { job, nodes, began }) if shown < MOST => {
                    shown += 1;
                    let since = began.map(|began| Seconds((self.now_ms / 1000).saturating_sub(began) as f64));
                    let since = since.map_or_else(String::new, |since| format!(" for {since}"));
                    lines.push(format!(
                        "- runs on {}{since}: {} (job {job})",
                        printable(nodes),
                        self.plan.run_name(run)
                    ));
                }
                Some(Standing::Queued { reason, .. }) => *reasons.entry(reason).or_default() += 1,
                Some(Standing::Unknown { why }) => *unknown.entry(why).or_default() += 1,
                _ => {}
            }
        }
        let reasons =
            reasons.into_iter().map(|(reason, count)| format!("- {count} in SLURM's queue: {}", printable(reason)));
        lines.extend(reasons);
        if self.elsewhere.is_none_or(|view| view.silence.is_none()) {
            let unknown = unknown.into_iter().map(|(why, count)| format!("! {count} not known: {}", printable(why)));
            lines.extend(unknown);
        }
        lines
    }

    fn runs_where(&self, wanted: impl Fn(&Where<'_>) -> bool) -> Vec<&'a PlannedRun> {
        self.plan.runs.iter().filter(|run| wanted(&self.state.where_is(&run.id))).collect()
    }

    fn waiting_runs(&self) -> Vec<&'a PlannedRun> {
        let waiting = |at: &usize| matches!(self.state.where_is(&self.plan.runs[*at].id), Where::Waiting(_));
        packing_order(&self.plan.pack_items()).into_iter().filter(waiting).map(|at| &self.plan.runs[at]).collect()
    }

    fn started_runs(&self) -> Vec<(&'a PlannedRun, &'a RunState)> {
        let of = |run: &'a PlannedRun| match self.state.where_is(&run.id) {
            Where::Started(known) => Some((run, known)),
            _ => None,
        };
        self.plan.runs.iter().filter_map(of).collect()
    }

    /// Counts by outcome.
    fn count_ends(&self) -> [usize; 4] {
        let succeeded = |run: &Where<'_>| matches!(run, Where::Ended(end) if end.outcome == Outcome::Succeeded);
        let ended = |run: &Where<'_>| matches!(run, Where::Ended(_));
        let done = self.runs_where(succeeded).len();
        let [running, ..] = self.sent_counts();
        [done, self.runs_where(ended).len() - done, self.started_runs().len() + running, self.waiting_runs().len()]
    }

    /// Failed runs by class.
    fn count_failures(&self) -> BTreeMap<String, usize> {
        let mut classes = BTreeMap::new();
        for run in &self.plan.runs {
            if let Where::Ended(end) = self.state.where_is(&run.id)
                && end.outcome != Outcome::Succeeded
            {
                let class = end.class.clone().unwrap_or_else(|| word(end.outcome).to_owned());
                *classes.entry(class).or_default() += 1;
            }
        }
        classes
    }

    /// Seconds until all is done, if the runs that are left take as long as those that are done, as many at once as now.
    fn seconds_left(&self) -> Option<f64> {
        let ends = self.state.runs.values().filter_map(|run| run.end.as_ref());
        let taken: Vec<f64> = ends.filter(|end| end.outcome == Outcome::Succeeded).map(|end| end.seconds).collect();
        let mean = taken.iter().sum::<f64>() / taken.len() as f64;
        let started = self.started_runs();
        let rest =
            started.iter().map(|(_, run)| (mean - self.now_ms.saturating_sub(run.started_ms) as f64 / 1e3).max(0.0));
        let whole = rest.sum::<f64>() + mean * self.waiting_runs().len() as f64;
        (!taken.is_empty() && !started.is_empty()).then(|| whole / started.len() as f64)
    }

    /// What others show of it.
    pub fn summary(&self) -> SuiteSummary {
        let [succeeded, failed, _, waiting] = self.count_ends();
        let running = |(run, known): (&PlannedRun, &RunState)| SuiteRun {
            name: self.plan.run_name(run),
            run: known.run.clone(),
            gpus: known.gpus.clone(),
            nodes: None,
            seconds: Some(self.now_ms.saturating_sub(known.started_ms) as f64 / 1e3),
        };
        let [_, queued, unknown] = self.sent_counts();
        SuiteSummary {
            name: self.plan.suite.clone(),
            is_run: self.is_run,
            paused: self.state.paused.clone(),
            succeeded,
            failed,
            waiting,
            seconds_left: self.seconds_left().filter(|_| self.is_run),
            queued,
            unknown,
            silence: self.elsewhere.and_then(|view| view.silence.clone()),
            running: self.started_runs().into_iter().map(running).chain(self.on_nodes()).collect(),
            next: self.waiting_runs().into_iter().take(NEXT).map(|run| self.plan.run_name(run)).collect(),
        }
    }

    /// Runs on SLURM's nodes.
    fn on_nodes(&self) -> Vec<SuiteRun> {
        let running = |run: &PlannedRun| match self.standing_of(&run.id)? {
            Standing::Running { job, nodes, began } => Some(SuiteRun {
                name: self.plan.run_name(run),
                run: job.clone(),
                gpus: Vec::new(),
                nodes: Some(nodes.clone()),
                seconds: began.map(|began| (self.now_ms / 1000).saturating_sub(began) as f64),
            }),
            _ => None,
        };
        self.sent_runs().into_iter().filter_map(running).collect()
    }

    /// The name of the run that is kept in the folder called `run`, where it is one of this suite.
    pub fn name_of(&self, run: &str) -> Option<String> {
        let is_it = |planned: &&PlannedRun| self.state.runs.get(&planned.id).is_some_and(|known| known.run == run);
        self.plan.runs.iter().find(is_it).map(|planned| self.plan.run_name(planned))
    }

    pub fn text(&self, look: &Look) -> String {
        let [done, failed, running, waiting] = self.count_ends();
        let plan = self.plan;
        let [on_nodes, queued, unknown] = self.sent_counts();
        let is_left = running - on_nodes + waiting > 0;
        let runner = match (self.is_run || !is_left, self.state.batches.is_empty()) {
            (true, _) => "",
            (false, true) => "; no runner: `tonnage suite run` goes on",
            (false, false) => "; `tonnage suite submit`, or `run`, goes on",
        };
        let sent = match (queued, unknown) {
            (0, 0) => String::new(),
            (queued, 0) => format!(", {queued} in SLURM's queue"),
            (queued, unknown) => format!(", {queued} in SLURM's queue, {unknown} not known"),
        };
        let left = self
            .seconds_left()
            .filter(|_| self.is_run)
            .map_or_else(String::new, |left| format!(", about {} left", Seconds(left)));
        let mut lines = vec![format!(
            "{}: {done} of {} done, {failed} failed, {running} running, {waiting} waiting{sent}{left}{runner}",
            plan.suite,
            plan.runs.len()
        )];
        if let Some(why) = &self.state.paused {
            lines.push(format!("! paused: {}", printable(why)));
        }
        for (run, known) in self.started_runs().into_iter().take(MOST) {
            let gpus = if known.gpus.is_empty() { String::new() } else { format!(" on GPU {}", known.gpus.join(",")) };
            let since = Seconds(self.now_ms.saturating_sub(known.started_ms) as f64 / 1e3);
            lines.push(format!("- runs{gpus} for {since}: {} (tonnage status {})", plan.run_name(run), known.run));
        }
        if self.orphaned > 0 {
            let (count, file) = (self.orphaned, &plan.file);
            lines.push(format!(
                "! {count} of these have no supervisor any more: `tonnage suite run {file}` takes them up"
            ));
        }
        lines.extend(self.sent_lines());
        for run in self.waiting_runs().into_iter().take(NEXT) {
            lines.push(format!("- next: {}", plan.run_name(run)));
        }
        for (class, count) in self.count_failures() {
            lines.push(format!("! {count} {class}: tonnage suite retry {} --class {class}", plan.suite));
        }
        lines.extend(self.failed_lines());
        if self.state.unreadable > 0 {
            lines.push(format!(
                "! {} lines of the journal could not be read: a torn line is what a death left",
                self.state.unreadable
            ));
        }
        lines.iter().map(|line| format!("{}\n", wrap_text(line, look.width, 2))).collect()
    }

    /// Why runs failed, of the first ones.
    fn failed_lines(&self) -> Vec<String> {
        let line = |run: &PlannedRun| match self.state.where_is(&run.id) {
            Where::Ended(end) if end.outcome != Outcome::Succeeded => {
                Some(format!("- {}: {}", self.plan.run_name(run), printable(&end.reason)))
            }
            _ => None,
        };
        self.plan.runs.iter().filter_map(line).take(MOST).collect()
    }

    /// What `suite status --json` prints (docs/suite.md).
    pub fn json(&self) -> Value {
        let [done, failed, running, waiting] = self.count_ends();
        let [_, queued, unknown] = self.sent_counts();
        let run = |run: &PlannedRun| {
            let (state, known) = match self.state.where_is(&run.id) {
                Where::Waiting(known) => ("waiting", known),
                Where::Started(known) => ("running", Some(known)),
                Where::Submitted(known) => (self.standing_of(&run.id).map_or("unknown", Standing::word), Some(known)),
                Where::Ended(end) => (word(end.outcome), self.state.runs.get(&run.id)),
            };
            let end = known.and_then(|known| known.end.as_ref());
            let slurm = known.and_then(|known| known.batch.as_ref()).map(|batch| {
                let standing = self.standing_of(&run.id);
                json!({"batch": batch, "job": standing.and_then(Standing::job), "why": standing.and_then(Standing::why)})
            });
            json!({
                "id": run.id, "configuration": self.plan.planned_of(run).name, "seed": run.seed, "state": state,
                "run": known.map(|known| &known.run), "gpus": known.map(|known| &known.gpus), "end": end,
                "slurm": slurm,
            })
        };
        json!({
            "version": tonnage_report::VERSION,
            "suite": self.plan.suite,
            "is_run": self.is_run,
            "paused": self.state.paused,
            "succeeded": done, "failed": failed, "running": running, "waiting": waiting,
            "orphaned": self.orphaned, "queued": queued, "unknown": unknown, "silence": self.elsewhere.and_then(|view| view.silence.as_ref()),
            "seconds_left": self.seconds_left(),
            "failures": self.count_failures(),
            "runs": self.plan.runs.iter().map(run).collect::<Vec<_>>(),
        })
    }
}
