//! Steps, tokens, GPU-hours and FLOPs until a value is reached.

use super::Context;
use crate::axis::Axis;
use crate::check::number_text;
use crate::document::{Block, Cell, Table};
use crate::experiment::Configuration;
use crate::run::Run;
use crate::statistics::{mean, median};

/// Points that are averaged, so that one lucky point is no milestone.
const WINDOW: usize = 5;

pub(super) fn section(context: &Context<'_>) -> Vec<Block> {
    let all = context.all;
    let budget = context.budget();
    let finals = all.baseline().map(|one| {
        all.scores(one, context.axis(), budget).into_iter().flatten().map(|score| score.last).collect::<Vec<f64>>()
    });
    let own = finals.filter(|values| !values.is_empty()).and_then(|values| {
        let first = all.baseline().map(|one| {
            all.runs_of(one)
                .filter_map(|run| run.metric(&all.metrics[0])?.values().first().copied())
                .collect::<Vec<f64>>()
        })?;
        Some(mean(&first) + 0.9 * (mean(&values) - mean(&first)))
    });
    let Some(value) = all.milestone.or(own) else { return Vec::new() };
    let row = |one: &Configuration| {
        let runs: Vec<&Run> = all.runs_of(one).collect();
        let reached: Vec<(&Run, f64)> =
            runs.iter().filter_map(|run| Some((*run, step_reached(context, run, value)?))).collect();
        let at = |of: &dyn Fn(&Run, f64) -> Option<f64>| {
            let values: Vec<f64> = reached.iter().filter_map(|(run, step)| of(run, *step)).collect();
            // Of the runs that did not reach it nothing is known but that it took longer.
            Cell::maybe((values.len() * 2 > runs.len()).then(|| median(&values)))
        };
        vec![
            one.name.as_str().into(),
            format!("{} of {}", reached.len(), runs.len()).into(),
            at(&|_, step| Some(step)),
            at(&|run, step| Axis::TokensGenerated.at(run, step)),
            at(&|run, step| Axis::TokensTrained.at(run, step)),
            at(&|run, step| Axis::GpuHours.at(run, step)),
            at(&|run, step| run.metric("flops")?.value_at(step)),
        ]
    };
    let whose = if all.milestone.is_some() { "as asked" } else { "nine tenths of the baseline's way" };
    let table = Table {
        name: "milestones",
        title: format!("Until `{}` is {} ({whose})", all.metric, number_text(value)),
        columns: vec![
            "configuration",
            "runs that reach it",
            "steps",
            "generated tokens",
            "training tokens",
            "GPU-hours",
            "FLOPs",
        ],
        rows: all.configurations.iter().take(super::MOST_ROWS).map(row).collect(),
        note: format!(
            "Medians over runs, where more than half reach it; reached where the mean of {WINDOW} points is there. Runs that do not reach it are not left out of the count."
        ),
        is_long: false,
    };
    vec![Block::Heading("Milestones".to_owned()), Block::Table(table)]
}

/// The first step at which the mean of a few points is at least as good as `value`.
fn step_reached(context: &Context<'_>, run: &Run, value: f64) -> Option<f64> {
    let series = run.metric(&context.all.metrics[0])?;
    let is_there = |mean: f64| if context.all.lower_is_better { mean <= value } else { mean >= value };
    let window = WINDOW.min(series.len());
    let at = series.values().windows(window).position(|points| is_there(mean(points)))?;
    Some(series.step_at(at + window - 1))
}
