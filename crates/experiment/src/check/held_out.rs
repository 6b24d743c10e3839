//! Evaluation on what was trained on, and evaluation that is not there.

use std::collections::HashSet;

use super::{Check, Flag, Severity, first_lines};
use crate::experiment::Experiment;
use crate::metric::Kind;

pub(super) const TRAINED_ON: Check = Check {
    name: "evaluated on training data",
    looks_for: "questions of the evaluation that are among those trained on, or a metric of the training set as the result",
    run: trained_on,
};
pub(super) const MISSING: Check = Check {
    name: "no held-out evaluation",
    looks_for: "a result that is not known to be on questions never trained on",
    run: missing_evaluations,
};

fn trained_on(all: &Experiment) -> Vec<Flag> {
    let mut flags = Vec::new();
    for run in &all.runs {
        let of = |split: &str| {
            run.items
                .iter()
                .filter(|item| item.split == split)
                .map(|item| item.item.as_str())
                .collect::<HashSet<&str>>()
        };
        let (train, eval) = (
            of("train"),
            run.items
                .iter()
                .filter(|item| item.split != "train")
                .map(|item| item.item.as_str())
                .collect::<HashSet<&str>>(),
        );
        let mut both: Vec<&str> = eval.intersection(&train).copied().collect();
        both.sort_unstable();
        if !both.is_empty() {
            flags.push(Flag {
                check: TRAINED_ON.name,
                severity: Severity::Refutes,
                configurations: vec![run.identity.configuration.clone()],
                said: format!(
                    "{}: {} of {} questions of its evaluation were trained on",
                    run.name(),
                    both.len(),
                    eval.len()
                ),
                evidence: first_lines(both.iter().map(|item| (*item).to_owned()).collect()),
            });
        }
    }
    if all.kind() == Kind::TrainingSet {
        flags.push(Flag {
            check: TRAINED_ON.name,
            severity: Severity::Refutes,
            configurations: Vec::new(),
            said: format!(
                "`{}` is measured on what was trained on: it says how training went, not what was learned",
                all.metric
            ),
            evidence: held_out_metrics(all),
        });
    }
    flags
}

fn missing_evaluations(all: &Experiment) -> Vec<Flag> {
    if matches!(all.kind(), Kind::HeldOut | Kind::TrainingSet) || all.runs.iter().any(|run| !run.items.is_empty()) {
        return Vec::new();
    }
    vec![Flag {
        check: MISSING.name,
        severity: Severity::Warns,
        configurations: Vec::new(),
        said: format!(
            "`{}` is not known to be of held-out questions ({}): a gain in it may be a gain on what was trained on",
            all.metric,
            all.kind().words()
        ),
        evidence: held_out_metrics(all),
    }]
}

/// Held-out metrics that could be asked about instead.
fn held_out_metrics(all: &Experiment) -> Vec<String> {
    let held_out: Vec<&str> =
        all.available.keys().filter(|name| Kind::of_name(name) == Kind::HeldOut).map(String::as_str).collect();
    if held_out.is_empty() {
        return vec!["no metric of any run is called eval, test, val or held_out".to_owned()];
    }
    vec![format!("of held-out questions there are: {} (--metric)", held_out.join(", "))]
}
