//! Compute that is not matched: one configuration generated, trained on or was paid for more than another.

use super::{Check, Flag, Severity, number_text};
use crate::axis::{AXES, Axis};
use crate::experiment::{Configuration, Experiment};
use crate::statistics::mean;
use crate::swarm::split_of;

/// A difference of a tenth is one.
const MATCHED: f64 = 1.1;

pub(super) const CHECK: Check = Check {
    name: "compute not matched",
    looks_for: "generated tokens, training tokens or GPU-hours that differ between configurations at equal steps",
    run,
};

fn run(all: &Experiment) -> Vec<Flag> {
    let mut evidence = Vec::new();
    let Some(budget) = all.budget(Axis::Steps) else { return Vec::new() };
    for (axis, _, words) in AXES.into_iter().filter(|row| row.0 != Axis::Steps) {
        let of = |one: &Configuration| {
            let each: Vec<f64> =
                all.runs_of(one).filter_map(|run| axis.is_known(run).then(|| axis.at(run, budget)).flatten()).collect();
            (!each.is_empty()).then(|| (one.name.clone(), mean(&each)))
        };
        let spent: Vec<(String, f64)> = all.configurations.iter().filter_map(of).collect();
        let ends = spent.iter().min_by(|a, b| a.1.total_cmp(&b.1)).zip(spent.iter().max_by(|a, b| a.1.total_cmp(&b.1)));
        if let Some((least, most)) = ends.filter(|(least, most)| most.1 > least.1 * MATCHED) {
            evidence.push(format!(
                "{words} by step {}: {} in {}, {} in {}",
                number_text(budget),
                number_text(most.1),
                most.0,
                number_text(least.1),
                least.0
            ));
        }
    }
    evidence.extend(by_shares(all));
    if evidence.is_empty() {
        return Vec::new();
    }
    vec![Flag {
        check: CHECK.name,
        severity: Severity::Warns,
        configurations: Vec::new(),
        said: "configurations are not given the same compute: a claim holds on the axis that it is made on, and only there".to_owned(),
        evidence,
    }]
}

/// What a swarm's configurations say without any count: a node generates only its own I questions of a round.
fn by_shares(all: &Experiment) -> Option<String> {
    if all.runs.iter().any(|run| Axis::TokensGenerated.is_known(run)) {
        return None;
    }
    let split = |one: &Configuration| Some((one.name.clone(), split_of(all.runs_of(one).next()?)?));
    let all: Vec<(String, (u64, u64))> = all.configurations.iter().filter_map(split).collect();
    // Numbers that do not add up to the same are of something else.
    if all.iter().any(|one| one.1.0 + one.1.1 != all[0].1.0 + all[0].1.1) {
        return None;
    }
    let least = all.iter().filter(|one| one.1.0 > 0).min_by_key(|one| one.1.0)?;
    let most = all.iter().max_by_key(|one| one.1.0)?;
    (most.1.0 > least.1.0).then(|| {
        format!(
            "by their names: {} generates {} questions a round, {} generates {}: {} times the completions",
            most.0,
            most.1.0,
            least.0,
            least.1.0,
            number_text(most.1.0 as f64 / least.1.0 as f64)
        )
    })
}
