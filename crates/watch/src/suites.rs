//! Suites of runs as text and JSON: which run is where, what is next. Where suites are kept is nothing of this crate's.

use serde_json::{Value, json};
use tonnage_core::printable::printable;
use tonnage_core::record::{SuiteRun, SuiteSummary};

use crate::amount::minutes_text;

/// Looks for the suites that live.
pub type LookAtSuites = Box<dyn FnMut() -> Vec<SuiteSummary> + Send>;

/// `suite lr-search: 3 of 20 done, 1 failed, 2 running, 14 waiting, about 12 min left`
pub fn suite_headline(suite: &SuiteSummary) -> String {
    let running = suite.running.len();
    let all = suite.succeeded + suite.failed + running + suite.waiting + suite.queued + suite.unknown;
    let mut text = format!("suite {}: {} of {all} done", printable(&suite.name), suite.succeeded);
    let counts = [
        (suite.failed, "failed"),
        (running, "running"),
        (suite.queued, "in the queue"),
        (suite.unknown, "not known"),
        (suite.waiting, "waiting"),
    ];
    for (count, word) in counts.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!(", {count} {word}"));
    }
    if let Some(seconds) = suite.seconds_left {
        text.push_str(&format!(", about {} left", minutes_text(seconds)));
    }
    match &suite.paused {
        Some(why) => text.push_str(&format!("; paused: {}", printable(why))),
        None if !suite.is_run && !is_elsewhere(suite) => text.push_str("; no runner"),
        None => {}
    }
    if let Some(why) = &suite.silence {
        text.push_str(&format!("; SLURM does not answer: {}", printable(why)));
    }
    text
}

/// Whether a scheduler has runs of it, which need no runner.
fn is_elsewhere(suite: &SuiteSummary) -> bool {
    suite.queued + suite.unknown > 0 || suite.running.iter().any(|run| run.nodes.is_some())
}

/// Which run is where, and what is next, in at most so many lines.
pub fn suite_run_lines(suite: &SuiteSummary, most: usize) -> Vec<String> {
    let next: Vec<String> = suite.next.iter().map(|name| printable(name)).collect();
    let next = (!next.is_empty() && most > 0).then(|| format!("next: {}", next.join("; ")));
    let room = most - usize::from(next.is_some());
    let mut lines: Vec<String> = suite.running.iter().take(room).map(run_line).collect();
    if suite.running.len() > room && !lines.is_empty() {
        lines.pop();
        lines.push(format!("and {} more", suite.running.len() - lines.len()));
    }
    lines.extend(next);
    lines
}

pub fn suite_json(suite: &SuiteSummary) -> Value {
    let run = |run: &SuiteRun| json!({"name": run.name, "run": run.run, "gpus": run.gpus, "nodes": run.nodes, "seconds": run.seconds});
    json!({
        "suite": suite.name,
        "is_run": suite.is_run,
        "paused": suite.paused,
        "succeeded": suite.succeeded,
        "failed": suite.failed,
        "waiting": suite.waiting,
        "queued": suite.queued,
        "unknown": suite.unknown,
        "silence": suite.silence,
        "seconds_left": suite.seconds_left,
        "running": suite.running.iter().map(run).collect::<Vec<_>>(),
        "next": suite.next,
    })
}

fn run_line(run: &SuiteRun) -> String {
    let (place, name) = match &run.nodes {
        Some(nodes) => (format!("{}: ", printable(nodes)), format!("job {}", run.run)),
        None if run.gpus.is_empty() => (String::new(), run.run.clone()),
        None => (format!("GPU {}: ", printable(&run.gpus.join(","))), run.run.clone()),
    };
    let since = run.seconds.map_or_else(String::new, |seconds| format!(" for {}", minutes_text(seconds)));
    format!("{place}{}{since} ({})", printable(&run.name), printable(&name))
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
        let suite = SuiteSummary {
            name: "s\u{1b}".to_owned(),
            is_run: true,
            waiting: 3,
            running: ["a", "b", "c"].map(run).to_vec(),
            next: vec!["d".to_owned(), "e".to_owned()],
            ..SuiteSummary::default()
        };
        assert_eq!(suite_headline(&suite), "suite s\\u{1b}: 0 of 6 done, 3 running, 3 waiting");
        assert_eq!(suite_run_lines(&suite, 4).len(), 4);
        assert_eq!(suite_run_lines(&suite, 3), ["a for 5 s (r)", "and 2 more", "next: d; e"]);
        assert_eq!(suite_run_lines(&suite, 1), ["next: d; e"]);
        assert!(suite_run_lines(&suite, 0).is_empty());
        let (job, nodes) = ("7_3".to_owned(), Some("n[1-2]".to_owned()));
        let on_nodes = SuiteRun { nodes, run: job, seconds: None, ..run("f") };
        let sent = SuiteSummary {
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
            suite_headline(&sent),
            "suite s\\u{1b}: 0 of 4 done, 1 running, 2 in the queue, 1 not known; SLURM does not answer: timed out\\u{7}"
        );
        assert_eq!(suite_run_lines(&sent, 3), ["n[1-2]: f (job 7_3)"]);
        let alone = SuiteSummary { is_run: false, next: Vec::new(), ..suite };
        assert!(suite_headline(&alone).ends_with("; no runner") && suite_run_lines(&alone, 2)[1] == "and 2 more");
    }
}
