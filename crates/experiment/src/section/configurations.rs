//! Every configuration with every run's value: final and best within the common budget, IQM, profile, comparison with the baseline.

use super::claims::{budget_text, verdict_text};
use super::{Context, MOST_ROWS, resampling};
use crate::check::number_text;
use crate::compare::Comparison;
use crate::document::{Block, Cell, Table};
use crate::experiment::{Configuration, Score};
use crate::figure::{Figure, Mark};
use crate::parallel::side_by_side;
use crate::statistics::{Effect, Summary, mean_interval, performance_profile, task_iqm};

pub(super) fn section(context: &Context<'_>) -> Vec<Block> {
    let (axis, limit) = (context.axis(), context.budget());
    let scored: Vec<Scored<'_>> = context
        .all
        .configurations
        .iter()
        .take(MOST_ROWS)
        .map(|one| Scored { one, scores: context.all.scores(one, axis, limit) })
        .collect();
    let mut blocks = vec![
        Block::Heading(format!("Results {}", budget_text(axis, limit))),
        Block::Table(scores_table(context, &scored)),
        Block::Table(every_run(context, &scored)),
    ];
    blocks.push(Block::Figure(Box::new(points_figure(context, &scored))));
    if let Some((_, rows)) = context.comparisons.first().filter(|(_, rows)| !rows.is_empty()) {
        blocks.push(Block::Table(comparison_table(rows)));
        blocks.push(Block::Table(effects_table(rows)));
    }
    if scored.iter().any(|one| one.values().len() > 2) {
        blocks.push(Block::Figure(Box::new(profile_figure(context))));
    }
    blocks
}

struct Scored<'a> {
    one: &'a Configuration,
    scores: Vec<Option<Score>>,
}

impl Scored<'_> {
    fn values(&self) -> Vec<f64> {
        self.scores.iter().flatten().map(|score| score.last).collect()
    }
}

fn scores_table(context: &Context<'_>, scored: &[Scored<'_>]) -> Table {
    let row = |one: &Scored<'_>| {
        let values = one.values();
        let summary = Summary::of(&values);
        let of = |pick: fn(&Summary) -> f64| Cell::maybe(summary.as_ref().map(pick));
        let tasks = context.all.task_scores(one.one, context.axis(), context.budget());
        let iqm = task_iqm(&tasks, resampling(scored.len(), values.len()));
        let best: Vec<f64> = one.scores.iter().flatten().map(|score| score.best).collect();
        vec![
            one.one.name.as_str().into(),
            Cell::count(values.len()),
            summary.map_or_else(|| "-".into(), |summary| Cell::with_interval(summary.mean, mean_interval(&values))),
            of(|summary| summary.median),
            iqm.map_or_else(|| "-".into(), |(value, interval)| Cell::with_interval(value, interval)),
            of(|summary| summary.sd),
            Cell::maybe((!best.is_empty()).then(|| crate::statistics::mean(&best))),
        ]
    };
    let left_out = context.all.configurations.len().saturating_sub(scored.len());
    let more = if left_out > 0 { format!(" {left_out} more configurations are in the CSV.") } else { String::new() };
    let how = resampling(scored.len(), scored.iter().map(|one| one.scores.len()).max().unwrap_or(1));
    Table {
        name: "configurations",
        title: format!("`{}`: the mean of the last tenth of each run's points", context.all.metric),
        columns: vec!["configuration", "n", "mean [95 %]", "median", "IQM [95 %]", "sd", "best"],
        rows: side_by_side(scored, row),
        note: format!(
            "Intervals of means by Student's t, of IQMs by stratified bootstrap ({} resamples, seed {}). Best-of values favour noisy runs.{more}",
            how.resamples, how.seed
        ),
        is_long: false,
    }
}

/// Every run's value, marked where the run is not whole.
fn every_score(context: &Context<'_>, one: &Scored<'_>) -> String {
    const MOST: usize = 12;
    let runs = context.all.runs_of(one.one).zip(&one.scores);
    let value = |(run, score): (&crate::run::Run, &Option<Score>)| {
        let is_marked = score.is_some_and(|score| score.is_short)
            || run.end.as_ref().is_some_and(|end| end.outcome != "succeeded" || end.attempts > 1);
        let mark = if is_marked { "*" } else { "" };
        score.map_or_else(|| "-".to_owned(), |score| format!("{}{mark}", number_text(score.last)))
    };
    let mut values: Vec<String> = runs.map(value).collect();
    let more = values.len().saturating_sub(MOST);
    values.truncate(MOST);
    if more > 0 {
        values.push(format!("and {more} more"));
    }
    values.join(" ")
}

fn comparison_table(rows: &[Comparison]) -> Table {
    let row = |row: &Comparison| {
        let permutation = row.permutation.map_or_else(
            || "-".into(),
            |test| {
                let least = if test.is_exact { "least" } else { "drawn, least" };
                Cell {
                    text: format!("{} ({least} {})", Cell::p(Some(test.p)).text, number_text(test.least_p)),
                    value: Some(test.p),
                }
            },
        );
        vec![
            row.configuration.as_str().into(),
            if row.is_paired { format!("{} pairs", row.n.0) } else { format!("{}+{}", row.n.0, row.n.1) }.into(),
            Cell::with_interval(row.difference, row.test.map(|test| test.interval)),
            Cell::p(row.test.map(|test| test.p)),
            Cell::p(row.holm_p),
            permutation,
            verdict_text(row).into(),
        ]
    };
    Table {
        name: "comparisons",
        title: "Against the baseline".to_owned(),
        columns: vec!["configuration", "n", "difference [95 %]", "p (t)", "p (Holm)", "p (permutation)", "verdict"],
        rows: rows.iter().take(MOST_ROWS).map(row).collect(),
        note: "t: Welch's, or Student's of pairs. Holm's correction is over the rows. Least: the smallest p that so many runs allow."
            .to_owned(),
        is_long: false,
    }
}

/// How large the differences are beside the spread.
fn effects_table(rows: &[Comparison]) -> Table {
    let row = |row: &Comparison| {
        let effect = |effect: Option<Effect>| {
            effect.map_or_else(|| "-".into(), |effect| Cell::with_interval(effect.value, effect.interval))
        };
        vec![
            row.configuration.as_str().into(),
            effect(row.hedges_g),
            effect(row.cliffs_delta),
            Cell::percent(row.improvement),
            row.seeds_needed.map_or_else(|| "-".into(), Cell::count),
        ]
    };
    Table {
        name: "effects",
        title: "Size of the effects".to_owned(),
        columns: vec!["configuration", "Hedges' g [95 %]", "Cliff's delta [95 %]", "P(better)", "seeds needed"],
        rows: rows.iter().take(MOST_ROWS).map(row).collect(),
        note: "P(better): the probability that a run of it is better than one of the baseline. Seeds needed: of each side, for this effect to be seen four \
               times of five at 0.05; an estimate from few runs, as uncertain as the effect."
            .to_owned(),
        is_long: false,
    }
}

/// Every run's value, by seed.
fn every_run(context: &Context<'_>, scored: &[Scored<'_>]) -> Table {
    Table {
        name: "every_run",
        title: "Every run".to_owned(),
        columns: vec!["configuration", "values by seed"],
        rows: scored.iter().map(|one| vec![one.one.name.as_str().into(), every_score(context, one).into()]).collect(),
        note: "A * marks a run that ended early, failed or was started again: none is left out.".to_owned(),
        is_long: false,
    }
}

/// Every run's point, with the mean's interval.
fn points_figure(context: &Context<'_>, scored: &[Scored<'_>]) -> Figure {
    const MOST: usize = 40;
    let mut marks = Vec::new();
    for (row, one) in scored.iter().take(MOST).enumerate() {
        let values = one.values();
        let y = row as f64;
        if let Some([low, high]) = mean_interval(&values) {
            marks.push(Mark::Interval { series: row, y, low, middle: crate::statistics::mean(&values), high });
        }
        marks.push(Mark::Dots {
            series: row,
            points: values.into_iter().take(500).map(|value| (value, y)).collect(),
            is_hollow: true,
        });
    }
    Figure {
        name: "final".to_owned(),
        title: format!("{} of every run", context.all.metric),
        described: "A ring a run; the dot is the mean, the line its 95 % interval (Student's t).".to_owned(),
        x: context.all.metric.clone(),
        rows: scored.iter().take(MOST).map(|one| one.one.name.clone()).collect(),
        marks,
        ..Figure::default()
    }
}

/// The share of runs above every value.
fn profile_figure(context: &Context<'_>) -> Figure {
    const MOST: usize = 8;
    let shown = || context.all.configurations.iter().take(MOST);
    let tasks: Vec<Vec<Vec<f64>>> =
        shown().map(|one| context.all.task_scores(one, context.axis(), context.budget())).collect();
    let all = || tasks.iter().flatten().flatten().copied().filter(|value| value.is_finite());
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    let thresholds: Vec<f64> = (0..=100).map(|index| low + (high - low) * f64::from(index) / 100.0).collect();
    let line = |(series, tasks): (usize, &Vec<Vec<f64>>)| {
        let shares = performance_profile(tasks, &thresholds);
        Mark::Line { series, points: thresholds.iter().copied().zip(shares).collect(), is_thin: false }
    };
    Figure {
        name: "profile".to_owned(),
        title: "Performance profile".to_owned(),
        described: "The share of runs (over all tasks) whose value is above x; a curve above another everywhere is better at every quantile.".to_owned(),
        x: context.all.metric.clone(),
        y: "share of runs above".to_owned(),
        series: shown().map(|one| one.name.clone()).collect(),
        marks: tasks.iter().enumerate().map(line).collect(),
        ..Figure::default()
    }
}
