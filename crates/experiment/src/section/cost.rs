//! What the runs took: GPU-hours, energy, price, and what failed attempts wasted; quality against cost.

use super::Context;
use crate::document::{Block, Cell, Table};
use crate::experiment::Configuration;
use crate::figure::{Figure, Mark};
use crate::run::Run;
use crate::statistics::mean;

pub(super) fn section(context: &Context<'_>) -> Vec<Block> {
    let all = context.all;
    if all.runs.iter().all(|run| gpu_hours(run).is_none() && run.end.is_none()) {
        return Vec::new();
    }
    let row = |one: &Configuration| {
        let sum = |of: &dyn Fn(&Run) -> Option<f64>| {
            let values: Vec<f64> = all.runs_of(one).filter_map(of).collect();
            Cell::maybe((!values.is_empty()).then(|| values.iter().sum()))
        };
        let end = |of: fn(&crate::record::End) -> Option<f64>| move |run: &Run| run.end.as_ref().and_then(of);
        let attempts: u32 = all.runs_of(one).filter_map(|run| run.end.as_ref()).map(|end| end.attempts).sum();
        let failed =
            all.runs_of(one).filter(|run| run.end.as_ref().is_some_and(|end| end.outcome != "succeeded")).count();
        vec![
            one.name.as_str().into(),
            Cell::count(one.runs.len()),
            sum(&gpu_hours),
            sum(&end(|end| end.energy_joules.map(|joules| joules / 3.6e6))),
            sum(&end(|end| end.dollars)),
            Cell::count(attempts as usize),
            Cell::count(failed),
            sum(&end(|end| end.lost_seconds.map(|seconds| seconds / 3600.0))),
        ]
    };
    let table = Table {
        name: "cost",
        title: "What all runs of a configuration took".to_owned(),
        columns: vec!["configuration", "runs", "GPU-hours", "kWh", "$", "starts", "failed", "hours lost"],
        rows: all.configurations.iter().take(super::MOST_ROWS).map(row).collect(),
        note: "Hours lost are of attempts that failed. What no record says is not counted as nothing, it is -."
            .to_owned(),
        is_long: false,
    };
    let mut blocks = vec![Block::Heading("Cost".to_owned()), Block::Table(table)];
    blocks.extend(pareto(context).map(|figure| Block::Figure(Box::new(figure))));
    blocks
}

fn gpu_hours(run: &Run) -> Option<f64> {
    run.metric("gpu_hours").and_then(|series| series.last()).map(|last| last.1)
}

/// Mean cost and mean quality of every configuration, and the line of those that none is better and cheaper than.
fn pareto(context: &Context<'_>) -> Option<Figure> {
    let all = context.all;
    let point = |one: &Configuration| {
        let hours: Vec<f64> = all.runs_of(one).filter_map(gpu_hours).collect();
        let values: Vec<f64> =
            all.scores(one, context.axis(), f64::INFINITY).into_iter().flatten().map(|score| score.last).collect();
        (!hours.is_empty() && !values.is_empty()).then(|| (one.name.clone(), (mean(&hours), mean(&values))))
    };
    let points: Vec<(String, (f64, f64))> = all.configurations.iter().filter_map(point).collect();
    if points.len() < 2 {
        return None;
    }
    let is_beaten = |at: &(f64, f64)| {
        points.iter().any(|(_, other)| other.0 <= at.0 && all.gain(other.1 - at.1) >= 0.0 && other != at)
    };
    let mut front: Vec<(f64, f64)> = points.iter().map(|point| point.1).filter(|at| !is_beaten(at)).collect();
    front.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut marks = vec![Mark::Line { series: 7, points: front, is_thin: false }];
    marks.extend(points.iter().enumerate().map(|(series, (_, at))| Mark::Dots {
        series,
        points: vec![*at],
        is_hollow: false,
    }));
    Some(Figure {
        name: "pareto".to_owned(),
        title: "Quality against cost".to_owned(),
        described: "A point a configuration, means over its runs; no configuration is both cheaper and better than those on the line.".to_owned(),
        x: "GPU-hours of a run".to_owned(),
        y: all.metric.clone(),
        series: points.into_iter().map(|point| point.0).collect(),
        marks,
        ..Figure::default()
    })
}
