//! Groups without reward variance teach nothing: GRPO's advantages of equal rewards are zero.

use super::{Check, Flag, Severity, first_lines};
use crate::experiment::Experiment;
use crate::run::Run;
use tonnage_core::small_sort::SmallSort;

/// Below this share of groups with variance nothing was learned in our trials (testdata/experiment, small GRPO: seeds that failed
/// fell below it and stayed there).
const FEW: f64 = 0.3;
/// Below this there is no signal to speak of.
const HARDLY_ANY: f64 = 0.05;

pub(super) const CHECK: Check = Check {
    name: "no reward variance",
    looks_for: "the share of groups whose completions differ in reward; GRPO learns from no other",
    run,
};

fn run(all: &Experiment) -> Vec<Flag> {
    let shares = all.runs.iter().filter_map(|run| Some((run, live_share(run)?)));
    let poor: Vec<(&Run, f64)> = shares.filter(|(_, share)| *share < FEW).collect();
    let flag = |severity: Severity, these: Vec<&(&Run, f64)>| {
        let mut configurations: Vec<String> = these.iter().map(|(run, _)| run.identity.configuration.clone()).collect();
        configurations.small_sort();
        configurations.dedup();
        Flag {
            check: CHECK.name,
            severity,
            said: format!(
                "in {} hardly any group of completions differs in reward: the advantages are zero, and nothing is learned from them",
                configurations.join(", ")
            ),
            configurations,
            evidence: first_lines(
                these
                    .iter()
                    .map(|(run, share)| format!("{}: {:.1} % of its groups have variance", run.name(), share * 100.0))
                    .collect(),
            ),
        }
    };
    let (none, few): (Vec<_>, Vec<_>) = poor.iter().partition(|(_, share)| *share < HARDLY_ANY);
    let parts = [(Severity::Refutes, none), (Severity::Warns, few)];
    parts.into_iter().filter(|(_, these)| !these.is_empty()).map(|(severity, these)| flag(severity, these)).collect()
}

/// The share of a run's groups with variance, as trainers say it: counts, TRL's share of groups without, or a spread of zero.
pub(crate) fn live_share(run: &Run) -> Option<f64> {
    let mean = |name: &str| {
        run.metric(name).map(|series| crate::statistics::mean(series.values())).filter(|mean| mean.is_finite())
    };
    if let (Some(live), Some(groups)) = (run.metric("groups_with_variance"), run.metric("groups")) {
        return (groups.sum() > 0.0).then(|| live.sum() / groups.sum());
    }
    let without = ["frac_reward_zero_std", "train/frac_reward_zero_std"].into_iter().find_map(mean);
    without.map(|share| 1.0 - share).or_else(|| ["live", "share_of_groups_with_variance"].into_iter().find_map(mean))
}
