//! Values that no completion could earn: above the most, below the least, shares above one, or no numbers at all.

use super::{Check, Flag, Severity, first_lines, number_text};
use crate::experiment::Experiment;
use crate::record::Total;
use crate::run::Run;
use tonnage_core::small_sort::SmallSort;

/// What adds up in floating point may be above by so much.
const SLACK: f64 = 1e-6;

pub(super) const CHECK: Check = Check {
    name: "impossible values",
    looks_for: "rewards above what completions can earn, accuracies outside of 0 to 1, values that are no numbers",
    run,
};

fn run(all: &Experiment) -> Vec<Flag> {
    let mut flags = Vec::new();
    let runs = all.runs.iter().filter(|run| run.nodes <= 1).chain(&all.nodes);
    let (mut beyond, mut not_finite) = (Vec::new(), Vec::new());
    for run in runs {
        for (name, series) in &run.series {
            let limits = metric_limits(run, name);
            let is_out = |(_, value): &(f64, f64)| {
                limits.is_some_and(|(least, most)| *value > most + SLACK || *value < least - SLACK)
            };
            if let (Some((step, value)), Some((least, most))) = (series.points().find(is_out), limits) {
                beyond.push((
                    run,
                    format!(
                        "{}: `{name}` is {} at step {}, possible is {} to {}",
                        run.name(),
                        number_text(value),
                        number_text(step),
                        number_text(least),
                        number_text(most)
                    ),
                ));
            }
            let count = series.values().iter().filter(|value| !value.is_finite()).count();
            if count > 0 && all.metrics.contains(name) {
                let first = series.points().find(|(_, value)| !value.is_finite()).map_or(0.0, |point| point.0);
                not_finite.push((
                    run,
                    format!(
                        "{}: `{name}` is no number at {count} of {} points, first at step {}",
                        run.name(),
                        series.len(),
                        number_text(first)
                    ),
                ));
            }
        }
    }
    flags.extend(flag_found(
        beyond,
        Severity::Refutes,
        "values that cannot be: the reward is counted on another scale, or added to",
    ));
    flags.extend(flag_found(
        not_finite,
        Severity::Warns,
        "values that are no numbers: they are left out of means, and a run that diverged is not a run that is missing",
    ));
    flags
}

/// What a metric of a run can be, where that is known.
fn metric_limits(run: &Run, name: &str) -> Option<(f64, f64)> {
    let lower = name.to_ascii_lowercase();
    let parts: Vec<&str> = lower.split(['/', '_', '-']).collect();
    let is_share = parts.iter().any(|part| matches!(*part, "accuracy" | "acc" | "exact") || part.starts_with("pass@"));
    let values = || run.metric(name).into_iter().flat_map(|series| series.values());
    if is_share {
        // Per cent are shares too, if they are ever far above one.
        let most = values().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
        return Some((0.0, if most > 1.5 { 100.0 } else { 1.0 }));
    }
    let scale = run.identity.reward;
    let is_reward = matches!(lower.as_str(), "reward" | "my_reward") || lower.starts_with("reward/");
    let of_all = match scale.of_completions? {
        Total::Mean => 1.0,
        Total::Sum => scale.completions? as f64,
    };
    is_reward.then_some((scale.min.unwrap_or(f64::NEG_INFINITY) * of_all, scale.max? * of_all))
}

fn flag_found(found: Vec<(&Run, String)>, severity: Severity, said: &str) -> Option<Flag> {
    let mut configurations: Vec<String> = found.iter().map(|(run, _)| run.identity.configuration.clone()).collect();
    configurations.small_sort();
    configurations.dedup();
    let evidence = first_lines(found.into_iter().map(|(_, line)| line).collect());
    let said = format!(
        "{} {said}",
        if configurations.len() == 1 {
            format!("{} has", configurations[0])
        } else {
            "several configurations have".to_owned()
        }
    );
    (!evidence.is_empty()).then_some(Flag { check: CHECK.name, severity, configurations, said, evidence })
}
