//! Results that are the same where something should differ: between configurations, between seeds, between nodes.

use super::{Check, Flag, Severity, first_lines};
use crate::experiment::Experiment;
use crate::metric::interest_in;
use crate::run::Run;
use crate::series::Series;
use tonnage_core::small_sort::SmallSort;

/// Common steps below which equal values may be chance.
const FEWEST: usize = 8;
/// The share of common steps with equal values from which results count as the same.
const SAME: f64 = 0.9;
/// Runs that are held against each other: beyond this the first of each configuration.
const MOST: usize = 400;

pub(super) const CONFIGURATIONS: Check = Check {
    name: "identical configurations",
    looks_for: "configurations with the same values step by step: the setting changed nothing, or its results were copied",
    run: check_configurations,
};
pub(super) const SEEDS: Check = Check {
    name: "identical seeds",
    looks_for: "runs of other seeds with the same values: the seed changed nothing, and n is smaller than it looks",
    run: check_seeds,
};
pub(super) const NODES: Check = Check {
    name: "identical nodes",
    looks_for: "nodes of a swarm with the same values: everyone trains on everything, which is data parallelism under another name",
    run: check_nodes,
};

/// Runs as they were written: nodes by themselves.
fn written_runs(all: &Experiment) -> Vec<&Run> {
    let whole = all.runs.iter().filter(|run| run.nodes <= 1);
    let mut runs: Vec<&Run> = whole.chain(&all.nodes).collect();
    if runs.len() > MOST {
        let mut seen = std::collections::HashMap::new();
        runs.retain(|run| {
            let count = seen.entry(&run.identity.configuration).or_insert(0);
            *count += 1;
            *count <= 2
        });
        runs.truncate(MOST);
    }
    runs
}

/// Of two runs, metric, equal steps and common steps, where they are the same.
fn common_metric(a: &Run, b: &Run) -> Option<(String, usize, usize)> {
    let both = a
        .series
        .iter()
        .filter(|(name, _)| interest_in(name) > 0)
        .filter_map(|(name, series)| Some((name, series, b.metric(name)?)));
    let mut found = None;
    for (name, of_a, of_b) in both {
        let (equal, common) = equal_steps(of_a, of_b);
        if common < FEWEST || is_constant(of_a) && is_constant(of_b) {
            continue;
        }
        // One metric that differs is enough: a saturated one may well be the same.
        if (equal as f64) < SAME * common as f64 {
            return None;
        }
        if found.as_ref().is_none_or(|(best, _, _): &(String, usize, usize)| interest_in(name) > interest_in(best)) {
            found = Some((name.clone(), equal, common));
        }
    }
    found
}

fn equal_steps(a: &Series, b: &Series) -> (usize, usize) {
    let (mut equal, mut common, mut at) = (0, 0, 0);
    for (step, value) in a.points() {
        while at < b.len() && b.step_at(at) < step {
            at += 1;
        }
        if at < b.len() && b.step_at(at) == step {
            common += 1;
            equal += usize::from(b.values()[at] == value);
        }
    }
    (equal, common)
}

fn is_constant(series: &Series) -> bool {
    series.values().windows(2).all(|pair| pair[0] == pair[1])
}

fn identical_pairs<'a>(
    runs: &'a [&'a Run],
    is_pair: impl Fn(&Run, &Run) -> bool,
) -> Vec<(&'a Run, &'a Run, String, usize, usize)> {
    let mut found = Vec::new();
    for (index, a) in runs.iter().enumerate() {
        for b in runs[index + 1..].iter().filter(|b| is_pair(a, b)) {
            if let Some((metric, equal, common)) = common_metric(a, b) {
                found.push((*a, *b, metric, equal, common));
            }
        }
    }
    found
}

fn check_configurations(all: &Experiment) -> Vec<Flag> {
    let runs = written_runs(all);
    // Of one seed and node, which are what a copy has in common; else any of one against any of the other.
    let is_pair = |a: &Run, b: &Run| {
        let alike = a.identity.seed == b.identity.seed && a.identity.node == b.identity.node;
        a.identity.configuration != b.identity.configuration && alike
    };
    let found = identical_pairs(&runs, is_pair);
    let mut by_pair: std::collections::BTreeMap<(String, String), Vec<String>> = std::collections::BTreeMap::new();
    let mut totals: std::collections::BTreeMap<(String, String), (usize, usize)> = std::collections::BTreeMap::new();
    for (a, b, metric, equal, common) in &found {
        let names = (a.identity.configuration.clone(), b.identity.configuration.clone());
        let total = totals.entry(names.clone()).or_default();
        (total.0, total.1) = (total.0 + equal, total.1 + common);
        by_pair.entry(names).or_default().push(format!(
            "{} and {}: `{metric}` is equal at {equal} of {common} steps",
            a.name(),
            b.name()
        ));
    }
    let flag = |((a, b), lines): ((String, String), Vec<String>)| {
        let (equal, common) = totals.get(&(a.clone(), b.clone())).copied().unwrap_or_default();
        Flag {
            check: CONFIGURATIONS.name,
            severity: Severity::Refutes,
            said: format!(
                "{a} and {b} should differ and agree in {equal} of {common} values: what was changed had no effect on them"
            ),
            configurations: vec![a, b],
            evidence: first_lines(lines),
        }
    };
    by_pair.into_iter().map(flag).collect()
}

fn check_seeds(all: &Experiment) -> Vec<Flag> {
    let runs = written_runs(all);
    let is_pair = |a: &Run, b: &Run| {
        let alike = a.identity.configuration == b.identity.configuration && a.identity.node == b.identity.node;
        alike && a.identity.seed != b.identity.seed
    };
    one_flag(
        SEEDS.name,
        identical_pairs(&runs, is_pair),
        "runs of other seeds have the same values: they are one run written twice",
    )
}

fn check_nodes(all: &Experiment) -> Vec<Flag> {
    let nodes: Vec<&Run> = all.nodes.iter().take(MOST).collect();
    let is_pair =
        |a: &Run, b: &Run| a.identity.configuration == b.identity.configuration && a.identity.seed == b.identity.seed;
    let mut flags = one_flag(
        NODES.name,
        identical_pairs(&nodes, is_pair),
        "nodes have the same values: they train one model, as data parallelism does, and share nothing",
    );
    flags.iter_mut().for_each(|flag| flag.severity = Severity::Warns);
    flags
}

fn one_flag(check: &'static str, found: Vec<(&Run, &Run, String, usize, usize)>, said: &str) -> Vec<Flag> {
    if found.is_empty() {
        return Vec::new();
    }
    let mut configurations: Vec<String> = found.iter().map(|row| row.0.identity.configuration.clone()).collect();
    configurations.small_sort();
    configurations.dedup();
    let lines = found.iter().map(|(a, b, metric, equal, common)| {
        format!("{} and {}: `{metric}` is equal at {equal} of {common} steps", a.name(), b.name())
    });
    let evidence = first_lines(lines.collect());
    vec![Flag {
        check,
        severity: Severity::Refutes,
        said: format!("{}: {said}", configurations.join(", ")),
        configurations,
        evidence,
    }]
}
