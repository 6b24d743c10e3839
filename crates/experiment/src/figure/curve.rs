//! Learning curves: of a configuration with several runs the mean with its interval, and around it all runs' extremes; of a single
//! run every point, without losing a spike.

use super::{Figure, Mark};
use crate::axis::Axis;
use crate::experiment::{Configuration, Experiment};
use crate::series::min_max;
use crate::statistics::{mean, mean_interval};

/// Points of a mean curve.
const GRID: usize = 120;
/// Columns of a single run's curve: about a pixel each.
const COLUMNS: usize = 700;
/// Curves of one figure; further ones are in the tables.
const MOST_CURVES: usize = 12;
/// Runs whose own lines are drawn.
const MOST_LINES: usize = 10;

/// The curves of all configurations in `metric` on `axis`.
pub fn curve_figure(all: &Experiment, metric: &str, axis: Axis) -> Figure {
    let shown = all.configurations.iter().take(MOST_CURVES).enumerate();
    let mut marks = Vec::new();
    for (series, configuration) in shown {
        marks.extend(of_configuration(all, configuration, metric, axis, series));
    }
    let left_out = all.configurations.len().saturating_sub(MOST_CURVES);
    let more = if left_out > 0 {
        format!(" The first {MOST_CURVES} configurations; {left_out} more are in the tables.")
    } else {
        String::new()
    };
    Figure {
        name: format!("curves-{}", axis.name()),
        title: format!("{metric} by {}", axis.words()),
        described: format!(
            "Mean over runs with its 95 % interval (Student's t), all runs' extremes in a fainter colour; single runs as they are.{more}"
        ),
        x: axis.words().to_owned(),
        y: metric.to_owned(),
        series: all.configurations.iter().take(MOST_CURVES).map(|one| one.name.clone()).collect(),
        marks,
        ..Figure::default()
    }
}

fn of_configuration(
    all: &Experiment,
    configuration: &Configuration,
    metric: &str,
    axis: Axis,
    series: usize,
) -> Vec<Mark> {
    let runs: Vec<_> = all.runs_of(configuration).filter(|run| run.metric(metric).is_some()).collect();
    let points = |run: &crate::run::Run| -> Vec<(f64, f64)> {
        let points = run.metric(metric).into_iter().flat_map(|series| series.points());
        points.filter_map(|(step, value)| Some((axis.at(run, step)?, value))).collect()
    };
    if let [run] = runs.as_slice() {
        return vec![Mark::Line { series, points: min_max(&points(run), COLUMNS), is_thin: false }];
    }
    let grid = mean_curve(all, configuration, metric, axis);
    let mut marks = Vec::new();
    let band = |of: fn(&GridPoint) -> [f64; 2]| {
        grid.iter().map(|at| (at.x, of(at)[0], of(at)[1])).filter(|(_, low, _)| low.is_finite()).collect::<Vec<_>>()
    };
    marks.push(Mark::Band { series, points: band(|at| at.extremes), is_faint: true });
    marks.push(Mark::Band { series, points: band(|at| at.interval.unwrap_or([f64::NAN; 2])), is_faint: false });
    if runs.len() <= MOST_LINES {
        marks.extend(runs.iter().map(|run| Mark::Line { series, points: min_max(&points(run), GRID), is_thin: true }));
    }
    marks.push(Mark::Line { series, points: grid.iter().map(|at| (at.x, at.mean)).collect(), is_thin: false });
    marks
}

/// A point of a mean curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GridPoint {
    pub x: f64,
    /// The mean over runs.
    pub mean: f64,
    /// Its interval, of two runs and more.
    pub interval: Option<[f64; 2]>,
    /// The least and the greatest point of any run in this stretch.
    pub extremes: [f64; 2],
}

/// The mean over runs in equal stretches of the axis, up to where all of them got. In a stretch a run counts with the mean of its
/// points; without any, with what lies between its neighbours.
pub fn mean_curve(all: &Experiment, configuration: &Configuration, metric: &str, axis: Axis) -> Vec<GridPoint> {
    let runs: Vec<_> = all.runs_of(configuration).filter(|run| run.metric(metric).is_some()).collect();
    let end = |run: &&crate::run::Run| axis.at(run, run.metric(metric)?.last_point()?.0);
    let begin = |run: &&crate::run::Run| axis.at(run, run.metric(metric)?.points().next()?.0);
    let (Some(from), Some(to)) =
        (runs.iter().filter_map(begin).max_by(f64::total_cmp), runs.iter().filter_map(end).min_by(f64::total_cmp))
    else {
        return Vec::new();
    };
    let most = runs.iter().filter_map(|run| run.metric(metric)).map(crate::series::Series::len).max().unwrap_or(0);
    let cells = GRID.min(most.max(2) - 1);
    if to <= from {
        return Vec::new();
    }
    let mut sums = vec![vec![(0.0, 0usize, f64::INFINITY, f64::NEG_INFINITY); cells + 1]; runs.len()];
    for (run, sums) in runs.iter().zip(&mut sums) {
        for (step, value) in
            run.metric(metric).into_iter().flat_map(|series| series.points()).filter(|point| point.1.is_finite())
        {
            let Some(x) = axis.at(run, step).filter(|x| (from..=to).contains(x)) else { continue };
            let cell = &mut sums[((x - from) / (to - from) * cells as f64).round() as usize];
            *cell = (cell.0 + value, cell.1 + 1, cell.2.min(value), cell.3.max(value));
        }
    }
    let filled: Vec<Vec<Option<f64>>> = sums.iter().map(|cells| interpolate_between(cells)).collect();
    (0..=cells)
        .filter_map(|cell| {
            let values: Vec<f64> = filled.iter().filter_map(|of_run| of_run[cell]).collect();
            let lows = sums.iter().map(|of_run| of_run[cell].2).chain(values.iter().copied());
            let highs = sums.iter().map(|of_run| of_run[cell].3).chain(values.iter().copied());
            (values.len() == runs.len()).then(|| GridPoint {
                x: from + (to - from) * cell as f64 / cells as f64,
                mean: mean(&values),
                interval: mean_interval(&values),
                extremes: [lows.fold(f64::INFINITY, f64::min), highs.fold(f64::NEG_INFINITY, f64::max)],
            })
        })
        .collect()
}

/// The mean of every cell; of an empty one what lies on the line between its neighbours.
fn interpolate_between(cells: &[(f64, usize, f64, f64)]) -> Vec<Option<f64>> {
    let own: Vec<Option<f64>> = cells.iter().map(|cell| (cell.1 > 0).then(|| cell.0 / cell.1 as f64)).collect();
    let known: Vec<(usize, f64)> = own.iter().enumerate().filter_map(|(at, value)| Some((at, (*value)?))).collect();
    let fill = |at: usize| {
        let after = known.partition_point(|(place, _)| *place < at);
        let (next, before) = (known.get(after)?, known.get(after.checked_sub(1)?)?);
        Some(before.1 + (next.1 - before.1) * (at - before.0) as f64 / (next.0 - before.0) as f64)
    };
    own.iter().enumerate().map(|(at, value)| value.or_else(|| fill(at))).collect()
}
