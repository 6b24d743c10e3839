//! [`SuiteView`]: a suite of runs as views show it: which run is where, what is next. Where suites are kept is nothing of this crate's.

use serde_json::{Value, json};
use tonnage_core::printable::printable;

use crate::amount::minutes_text;

/// A suite of runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SuiteView {
    /// What it is called.
    pub name: String,
    /// Whether something starts what is next.
    pub is_run: bool,
    /// Why nothing more is started.
    pub paused: Option<String>,
    /// Runs that are done.
    pub succeeded: usize,
    /// Runs that failed, or were refused.
    pub failed: usize,
    /// Runs that are to be started.
    pub waiting: usize,
    /// Runs in a scheduler's queue.
    pub queued: usize,
    /// Runs that a scheduler was sent, and of which nothing is known.
    pub unknown: usize,
    /// Why nothing is known of them, where the scheduler does not answer.
    pub silence: Option<String>,
    /// Until all is done, in seconds.
    pub seconds_left: Option<f64>,
    /// Runs that have not ended.
    pub running: Vec<SuiteRun>,
    /// What is started next, by name.
    pub next: Vec<String>,
}

/// A run of a suite that has not ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SuiteRun {
    /// Configuration and seed.
    pub name: String,
    /// By which `tonnage status` knows it; a scheduler's job where it has nodes.
    pub run: String,
    /// By index or UUID.
    pub gpus: Vec<String>,
    /// The nodes that a scheduler gave it.
    pub nodes: Option<String>,
    /// Seconds since it was started, where that is known.
    pub seconds: Option<f64>,
}

/// Looks for the suites that live.
pub type LookAtSuites = Box<dyn FnMut() -> Vec<SuiteView> + Send>;

impl SuiteView {
    /// `suite lr-search: 3 of 20 done, 1 failed, 2 running, 14 waiting, about 12 min left`
    pub fn headline(&self) -> String {
        let running = self.running.len();
        let all = self.succeeded + self.failed + running + self.waiting + self.queued + self.unknown;
        let mut text = format!("suite {}: {} of {all} done", printable(&self.name), self.succeeded);
        let counts = [
            (self.failed, "failed"),
            (running, "running"),
            (self.queued, "in the queue"),
            (self.unknown, "not known"),
            (self.waiting, "waiting"),
        ];
        for (count, word) in counts.into_iter().filter(|(count, _)| *count > 0) {
            text.push_str(&format!(", {count} {word}"));
        }
        if let Some(seconds) = self.seconds_left {
            text.push_str(&format!(", about {} left", minutes_text(seconds)));
        }
        match &self.paused {
            Some(why) => text.push_str(&format!("; paused: {}", printable(why))),
            None if !self.is_run && !self.is_elsewhere() => text.push_str("; no runner"),
            None => {}
        }
        if let Some(why) = &self.silence {
            text.push_str(&format!("; SLURM does not answer: {}", printable(why)));
        }
        text
    }

    /// Whether a scheduler has runs of it, which need no runner.
    fn is_elsewhere(&self) -> bool {
        self.queued + self.unknown > 0 || self.running.iter().any(|run| run.nodes.is_some())
    }

    /// Which run is where, and what is next, in at most so many lines.
    pub fn lines(&self, most: usize) -> Vec<String> {
        let next: Vec<String> = self.next.iter().map(|name| printable(name)).collect();
        let next = (!next.is_empty() && most > 0).then(|| format!("next: {}", next.join("; ")));
        let room = most - usize::from(next.is_some());
        let mut lines: Vec<String> = self.running.iter().take(room).map(SuiteRun::suite_line).collect();
        if self.running.len() > room && !lines.is_empty() {
            lines.pop();
            lines.push(format!("and {} more", self.running.len() - lines.len()));
        }
        lines.extend(next);
        lines
    }

    pub fn json(&self) -> Value {
        let run = |run: &SuiteRun| json!({"name": run.name, "run": run.run, "gpus": run.gpus, "nodes": run.nodes, "seconds": run.seconds});
        json!({
            "suite": self.name,
            "is_run": self.is_run,
            "paused": self.paused,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "waiting": self.waiting,
            "queued": self.queued,
            "unknown": self.unknown,
            "silence": self.silence,
            "seconds_left": self.seconds_left,
            "running": self.running.iter().map(run).collect::<Vec<_>>(),
            "next": self.next,
        })
    }
}

impl SuiteRun {
    fn suite_line(&self) -> String {
        let (place, run) = match &self.nodes {
            Some(nodes) => (format!("{}: ", printable(nodes)), format!("job {}", self.run)),
            None if self.gpus.is_empty() => (String::new(), self.run.clone()),
            None => (format!("GPU {}: ", printable(&self.gpus.join(","))), self.run.clone()),
        };
        let since = self.seconds.map_or_else(String::new, |seconds| format!(" for {}", minutes_text(seconds)));
        format!("{place}{}{since} ({})", printable(&self.name), printable(&run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let run = |name: &str| SuiteRun {
            name: name.to_owned(),
            run: "r".to_owned(),
            seconds: Some(5.0),
            ..SuiteRun::default()
        };
        let suite = SuiteView {
            name: "s\u{1b}".to_owned(),
            is_run: true,
            waiting: 3,
            running: ["a", "b", "c"].map(run).to_vec(),
            next: vec!["d".to_owned(), "e".to_owned()],
            ..SuiteView::default()
        };
        assert_eq!(suite.headline(), "suite s\\u{1b}: 0 of 6 done, 3 running, 3 waiting");
        assert_eq!(suite.lines(4).len(), 4);
        assert_eq!(suite.lines(3), ["a for 5 s (r)", "and 2 more", "next: d; e"]);
        assert_eq!(suite.lines(1), ["next: d; e"]);
        assert!(suite.lines(0).is_empty());
        let (job, nodes) = ("7_3".to_owned(), Some("n[1-2]".to_owned()));
        let on_nodes = SuiteRun { nodes, run: job, seconds: None, ..run("f") };
        let sent = SuiteView {
            is_run: false,
            waiting: 0,
            queued: 2,
            unknown: 1,
            silence: Some("timed out\u{7}".to_owned()),
            running: vec![on_nodes],
            next: Vec::new(),
            ..suite.clone()
        };
        assert_eq!(
            sent.headline(),
            "suite s\\u{1b}: 0 of 4 done, 1 running, 2 in the queue, 1 not known; SLURM does not answer: timed out\\u{7}"
        );
        assert_eq!(sent.lines(3), ["n[1-2]: f (job 7_3)"]);
        let alone = SuiteView { is_run: false, next: Vec::new(), ..suite };
        assert!(alone.headline().ends_with("; no runner") && alone.lines(2)[1] == "and 2 more");
    }
}
