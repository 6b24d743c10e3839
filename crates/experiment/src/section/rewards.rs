//! Reward as three series (on-policy, held-out, training set), groups without variance, and how rewards are distributed.

use super::Context;
use crate::check::live_share;
use crate::document::{Block, Cell, Table};
use crate::experiment::{Configuration, Experiment};
use crate::figure::{Figure, Mark};
use crate::metric::{Kind, interest_in};
use crate::run::Run;
use crate::statistics::{mean, mean_interval};

pub(super) fn section(context: &Context<'_>) -> Vec<Block> {
    let all = context.all;
    let of_kind = |kind: Kind| {
        let named = all
            .available
            .keys()
            .filter(|name| Kind::of_name(name) == kind && interest_in(name) > 6 - u32::from(kind != Kind::HeldOut) * 3);
        named.filter(|name| name.contains("reward") || kind == Kind::HeldOut).max_by_key(|name| interest_in(name))
    };
    let series: Vec<(Kind, &String)> = [Kind::OnPolicy, Kind::HeldOut, Kind::TrainingSet]
        .into_iter()
        .filter_map(|kind| Some((kind, of_kind(kind)?)))
        .collect();
    let mut blocks = Vec::new();
    if series.len() > 1 {
        blocks.push(Block::Table(reward_kinds_table(context, &series)));
    }
    if all.runs.iter().any(|run| live_share(run).is_some()) {
        blocks.push(Block::Table(groups_table(context)));
    }
    if let Some(figure) = distribution_figure(context) {
        blocks.push(Block::Figure(Box::new(figure)));
    }
    if !blocks.is_empty() {
        blocks.insert(0, Block::Heading("Rewards".to_owned()));
    }
    blocks
}

/// The last tenth of each series, side by side.
fn reward_kinds_table(context: &Context<'_>, series: &[(Kind, &String)]) -> Table {
    let (axis, budget) = (context.axis(), context.budget());
    let mut rows = Vec::new();
    for one in context.all.configurations.iter().take(super::MOST_ROWS) {
        for (kind, name) in series {
            let scores = context.all.runs_of(one).filter_map(|run| context.all.score(run, name, axis, budget));
            let values: Vec<f64> = scores.map(|score| score.last).collect();
            let cell =
                if values.is_empty() { "-".into() } else { Cell::with_interval(mean(&values), mean_interval(&values)) };
            rows.push(vec![
                one.name.as_str().into(),
                kind.words().into(),
                name.as_str().into(),
                cell,
                Cell::count(values.len()),
            ]);
        }
    }
    Table {
        name: "three_series",
        title: "The same quantity on other questions".to_owned(),
        columns: vec!["configuration", "measured on", "metric", "mean [95 %]", "n"],
        rows,
        note: "A reward on the training set is biased upward where groups without variance are left out: compare configurations on held-out questions.".to_owned(),
        is_long: false,
    }
}

fn groups_table(context: &Context<'_>) -> Table {
    let row = |one: &Configuration| {
        let shares: Vec<f64> = context.all.runs_of(one).filter_map(live_share).collect();
        let least = shares.iter().copied().min_by(f64::total_cmp);
        vec![
            one.name.as_str().into(),
            Cell::percent((!shares.is_empty()).then(|| mean(&shares))),
            Cell::percent(least),
            Cell::count(shares.len()),
        ]
    };
    Table {
        name: "groups",
        title: "Groups with reward variance".to_owned(),
        columns: vec!["configuration", "mean", "least of a run", "n"],
        rows: context.all.configurations.iter().take(super::MOST_ROWS).map(row).collect(),
        note:
            "Groups whose rewards are all equal have no advantage: they are generated and paid for, and teach nothing."
                .to_owned(),
        is_long: false,
    }
}

/// How the values of all points are distributed, of the metric or of the on-policy reward.
fn distribution_figure(context: &Context<'_>) -> Option<Figure> {
    const BINS: usize = 30;
    const MOST: usize = 4;
    let all = context.all;
    let known = ["reward/on_policy", "my_reward", "reward", "train/reward"];
    let metric = known.iter().find_map(|name| all.available.get_key_value(*name)).map(|(name, _)| name)?;
    let shown = || all.configurations.iter().take(MOST);
    let values: Vec<Vec<f64>> = shown()
        .map(|one| {
            one_each(all, one)
                .into_iter()
                .filter_map(|run| run.metric(metric))
                .flat_map(|series| series.values())
                .copied()
                .filter(|value| value.is_finite())
                .collect()
        })
        .collect();
    let flat = || values.iter().flatten().copied();
    let (low, high) = (flat().fold(f64::INFINITY, f64::min), flat().fold(f64::NEG_INFINITY, f64::max));
    if high <= low || flat().next().is_none() {
        return None;
    }
    let width = (high - low) / BINS as f64;
    let mut marks = Vec::new();
    for (series, values) in values.iter().enumerate() {
        let mut counts = [0usize; BINS];
        values.iter().for_each(|value| counts[(((value - low) / width) as usize).min(BINS - 1)] += 1);
        let bars = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        marks.extend(bars.map(|(bin, count)| {
            let from = low + width * bin as f64;
            Mark::Bar { series, from, to: from + width, height: *count as f64 / values.len().max(1) as f64 }
        }));
    }
    Some(Figure {
        name: "distribution".to_owned(),
        title: format!("Distribution of {metric}"),
        described: "The share of all rounds, of all runs or nodes, in each of 30 equal stretches. A few spikes are a floor, not learning.".to_owned(),
        x: metric.clone(),
        y: "share of points".to_owned(),
        series: shown().map(|one| one.name.clone()).collect(),
        marks,
        ..Figure::default()
    })
}

/// Runs as they were written: nodes by themselves.
fn one_each<'a>(all: &'a Experiment, one: &'a Configuration) -> Vec<&'a Run> {
    let nodes: Vec<&Run> = all.nodes.iter().filter(|run| run.identity.configuration == one.name).collect();
    if nodes.is_empty() { all.runs_of(one).collect() } else { nodes }
}
