//! What the runs took: GPU-hours, energy, price, and what failed attempts wasted; quality against cost.

use std::collections::BTreeSet;
use tonnage_core::small_sort::SmallSort;

use tonnage_core::gpu::{self, Price, PriceKind};

use super::Context;
use crate::check::number_text;
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
            dollars_cell(&all.runs_of(one).collect::<Vec<_>>()),
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
        note: format!(
            "Hours lost are of attempts that failed. What no record says is not counted as nothing, it is -.{}",
            joined_names(&all.runs)
        ),
        is_long: false,
    };
    let mut blocks = vec![Block::Heading("Cost".to_owned()), Block::Table(table)];
    blocks.extend(pareto_figure(context).map(|figure| Block::Figure(Box::new(figure))));
    blocks
}

/// As logged; else the time that the run took on so many GPUs.
fn gpu_hours(run: &Run) -> Option<f64> {
    let logged = run.metric("gpu_hours").and_then(|series| series.last_point()).map(|last| last.1);
    let taken = || Some(run.end.as_ref()?.seconds? * run.identity.gpus? as f64 / 3600.0);
    logged.or_else(taken)
}

/// The price that a record says, or that its GPU-hours come to by the price table.
struct Paid {
    dollars: f64,
    /// The GPU and its price, where the table was asked.
    by_table: Option<(String, Price)>,
}

fn paid_for(run: &Run) -> Option<Paid> {
    if let Some(dollars) = run.end.as_ref().and_then(|end| end.dollars) {
        return Some(Paid { dollars, by_table: None });
    }
    let gpu = gpu::Gpu::parse(run.identity.gpu.as_deref()?).ok()?;
    let price = gpu::prices_of(&gpu.id, PriceKind::OnDemand)?.lowest()?;
    let dollars = gpu_hours(run)? * price.dollars_per_gpu_hour;
    Some(Paid { dollars, by_table: Some((gpu.id, price)) })
}

/// The sum over the runs; `~` marks one that the price table took part in, and a count runs without a price.
fn dollars_cell(runs: &[&Run]) -> Cell {
    let paid: Vec<Paid> = runs.iter().filter_map(|run| paid_for(run)).collect();
    if paid.is_empty() {
        return "-".into();
    }
    let mut cell = Cell::number(paid.iter().map(|one| one.dollars).sum());
    if paid.iter().any(|one| one.by_table.is_some()) {
        cell.text.insert(0, '~');
    }
    if paid.len() < runs.len() {
        cell.text.push_str(&format!(" ({} of {} runs)", paid.len(), runs.len()));
    }
    cell
}

/// What the price table was asked for.
fn joined_names(runs: &[Run]) -> String {
    let rows = runs.iter().filter_map(|run| paid_for(run)?.by_table);
    let said = |(gpu, price): (String, Price)| {
        format!("{gpu} ${} an hour ({})", number_text(price.dollars_per_gpu_hour), price.source)
    };
    let prices: BTreeSet<String> = rows.map(said).collect();
    if prices.is_empty() {
        return String::new();
    }
    let prices: Vec<String> = prices.into_iter().collect();
    format!(" ~: no record says a price; GPU-hours at the lowest price on demand of our list: {}.", prices.join(", "))
}

/// Mean cost and mean quality of every configuration, and the line of those that none is better and cheaper than.
fn pareto_figure(context: &Context<'_>) -> Option<Figure> {
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
    front.small_sort_by(|a, b| a.0.total_cmp(&b.0));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{End, Identity};

    fn run(gpu: Option<&str>, seconds: Option<f64>, dollars: Option<f64>) -> Run {
        let identity = Identity { gpu: gpu.map(str::to_owned), gpus: Some(2), ..Identity::default() };
        Run { identity, end: Some(End { seconds, dollars, ..End::default() }), ..Run::default() }
    }

    #[test]
    fn hours_are_priced_where_nobody_says_a_price() {
        let hour = gpu::prices_of("h100", PriceKind::OnDemand).unwrap().lowest().unwrap().dollars_per_gpu_hour;
        let h100 = run(Some("NVIDIA H100 80GB HBM3"), Some(3600.0), None);
        assert_eq!(paid_for(&h100).unwrap().dollars, 2.0 * hour);
        let cell = dollars_cell(&[&h100, &run(Some("H100"), None, Some(1.0)), &run(None, Some(1.0), None)]);
        assert_eq!((cell.value, cell.text.ends_with("(2 of 3 runs)")), (Some(2.0 * hour + 1.0), true));
        assert!(cell.text.starts_with('~') && joined_names(&[h100]).contains("h100 $"), "{}", cell.text);
    }

    #[test]
    fn what_has_no_price_has_none() {
        assert_eq!(dollars_cell(&[&run(Some("a potato"), Some(3600.0), None)]).text, "-");
        assert_eq!(dollars_cell(&[&run(Some("H100"), None, None)]).text, "-");
        let said = run(Some("H100"), Some(3600.0), Some(9.0));
        assert_eq!((dollars_cell(&[&said]).text.as_str(), joined_names(&[said])), ("9", String::new()));
    }
}
