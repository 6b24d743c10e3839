//! A reward that only ever is a floor: what a verifier pays for anything, or nothing at all.

use super::{Check, Flag, Severity, first_lines, number_text};
use crate::experiment::Experiment;
use crate::metric::Kind;
use crate::record::Total;
use crate::run::Run;
use crate::series::Series;
use tonnage_core::small_sort::SmallSort;

/// Points of a run below which its values say nothing.
const FEWEST: usize = 10;
/// A floor is far below what a right answer earns.
const FAR_BELOW: f64 = 0.2;
/// Values that a floor takes: none, one completion's, several completions'.
const VALUES: usize = 4;

pub(super) const CHECK: Check = Check {
    name: "reward floor",
    looks_for: "rewards of a few small values only, as of a verifier that pays a little for anything",
    run,
};

fn run(all: &Experiment) -> Vec<Flag> {
    let one_each = if all.nodes.is_empty() { &all.runs } else { &all.nodes };
    let found: Vec<(&Run, String)> = one_each.iter().filter_map(|run| Some((run, floor_of(run)?))).collect();
    if found.is_empty() {
        return Vec::new();
    }
    let mut configurations: Vec<String> = found.iter().map(|(run, _)| run.identity.configuration.clone()).collect();
    configurations.small_sort();
    configurations.dedup();
    vec![Flag {
        check: CHECK.name,
        severity: Severity::Refutes,
        said: format!(
            "the rewards of {} are a floor: no completion was seen to earn what a right answer earns",
            configurations.join(", ")
        ),
        configurations,
        evidence: first_lines(found.into_iter().map(|(run, said)| format!("{}: {said}", run.name())).collect()),
    }]
}

/// What the values of one of a run's rewards are, if they are a floor.
fn floor_of(run: &Run) -> Option<String> {
    let rewards = run.series.iter().filter(|(name, series)| is_reward(name) && series.len() >= FEWEST);
    rewards.filter_map(|(name, series)| floor_in(run, name, series)).next()
}

fn floor_in(run: &Run, name: &str, series: &Series) -> Option<String> {
    let mut values: Vec<f64> = Vec::new();
    for value in series.values() {
        if !values.contains(value) {
            values.push(*value);
        }
        if values.len() > VALUES {
            return None;
        }
    }
    values.small_sort_by(f64::total_cmp);
    let most = *values.last()?;
    // One right answer of a round; in a mean over completions it is a share of them.
    let earned = run.identity.reward.max.unwrap_or(1.0);
    let one_right = match run.identity.reward.of_completions {
        Some(Total::Sum) => earned,
        _ => earned * FAR_BELOW,
    };
    let is_floor = most < one_right && (most <= 0.0 || most < earned * FAR_BELOW);
    let shown: Vec<String> = values.iter().map(|value| number_text(*value)).collect();
    let of = if run.identity.reward.max.is_some() { "" } else { ", if that earns 1" };
    is_floor.then(|| {
        format!(
            "all {} values of `{name}` are {}; a right answer would add {}{of}",
            series.len(),
            shown.join(" or "),
            number_text(one_right)
        )
    })
}

/// Whether it is a reward itself, and not its spread, rank or total.
fn is_reward(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    matches!(last, "reward" | "my_reward" | "on_policy" | "mean_reward" | "rewards")
        && Kind::of_name(name) != Kind::HeldOut
        || name.starts_with("reward/") && last != "training_set"
}
