//! Runs that ended early, failed, or were started again: marked, never dropped.

use super::{Check, Flag, Severity, first_lines, number_text};
use crate::axis::Axis;
use crate::experiment::Experiment;
use tonnage_core::small_sort::SmallSort;

pub(super) const CHECK: Check = Check {
    name: "unfinished runs",
    looks_for: "runs that stopped before the others, failed, or were started again",
    run,
};

fn run(all: &Experiment) -> Vec<Flag> {
    let budget = all.budget(Axis::Steps);
    let (mut short, mut ended) = (Vec::new(), Vec::new());
    for run in all.runs.iter().chain(&all.nodes) {
        let last = all
            .metrics
            .iter()
            .filter_map(|metric| run.metric(metric)?.last_point())
            .map(|last| last.0)
            .max_by(f64::total_cmp);
        if let (Some(last), Some(budget)) = (last, budget)
            && last < budget * 0.9
        {
            short.push((
                run,
                format!("{} ends at step {}, others at {}", run.name(), number_text(last), number_text(budget)),
            ));
        }
        let Some(end) = &run.end else { continue };
        if end.outcome != "succeeded" {
            ended.push((
                run,
                format!(
                    "{}: {}{}{}",
                    run.name(),
                    end.outcome,
                    if end.reason.is_empty() { "" } else { ", " },
                    end.reason
                ),
            ));
        } else if end.attempts > 1 {
            let lost =
                end.lost_seconds.map_or_else(String::new, |seconds| format!(", {} s lost", number_text(seconds)));
            ended.push((run, format!("{}: started {} times{lost}", run.name(), end.attempts)));
        }
    }
    let flag = |found: Vec<(&crate::run::Run, String)>, said: &str| {
        let mut configurations: Vec<String> = found.iter().map(|(run, _)| run.identity.configuration.clone()).collect();
        configurations.small_sort();
        configurations.dedup();
        let evidence = first_lines(found.into_iter().map(|(_, line)| line).collect());
        (!evidence.is_empty()).then(|| Flag {
            check: CHECK.name,
            severity: Severity::Warns,
            configurations,
            said: said.to_owned(),
            evidence,
        })
    };
    let stopped = flag(short, "runs stopped before the others: they are scored by what they reached, and marked");
    let failed =
        flag(ended, "runs failed or were started again: a result of the runs that were lucky is another result");
    stopped.into_iter().chain(failed).collect()
}
