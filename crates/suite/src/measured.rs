//! What a run measured that did not write its metrics itself: lines of its output by the suite's patterns, else its TensorBoard files,
//! else the Trainer's state.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use tonnage_core::small_sort::SmallSort;

use serde::{Deserialize, Serialize};
use tonnage_experiment::record::{Point, Record};
use tonnage_experiment::run::Run;
use tonnage_experiment::source::{Limits, gather_runs};
use tonnage_run::request::output_dir;
use tonnage_run::store::RunFolder;

use crate::patterns::Pattern;
use crate::plan::{Plan, PlannedRun, fill_names};

/// Points of a run; what writes more is no log of metrics.
const MOST_POINTS: usize = 1_000_000;
/// Bytes of a line of output that may be metrics.
const LONGEST_LINE: usize = 64 << 10;

/// Bytes of the line that says who a run is: the suite's file is in it.
const LONGEST_IDENTITY: u64 = 16 << 20;

/// Where metrics of runs come from that do not write them themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sources {
    /// Patterns of the command's output.
    pub patterns: Vec<String>,
    /// The folder of a run's TensorBoard files, with `{names}`, from the folder that commands run in.
    pub tensorboard: Option<String>,
}

/// What the run in `folder` measured, by the first source that has something.
pub fn measured_points(plan: &Plan, run: &PlannedRun, folder: &RunFolder) -> Vec<Point> {
    let found = of_output(folder, &plan.sources.patterns);
    if !found.is_empty() {
        return found;
    }
    let found = events_file(plan, run).map(|place| of_files(&place)).unwrap_or_default();
    if !found.is_empty() {
        return found;
    }
    let place = folder.run().policy.checkpoints.as_ref().map(|place| Path::new(&folder.run().folder).join(place));
    place.map(|place| of_trainer(&place)).unwrap_or_default()
}

/// What a run measured whose output is in `logs`, by `patterns`; else by its TensorBoard files, where `plan` still has it as `run`; else by
/// the Trainer's state in the folder that the command in `records` names.
pub fn points_of_logs(
    patterns: &[String],
    logs: &[PathBuf],
    plan: &Plan,
    run: Option<&PlannedRun>,
    records: &Path,
) -> Vec<Point> {
    let patterns: Vec<Pattern> = patterns.iter().map(|pattern| Pattern::read_patterns(pattern)).collect();
    let mut points = Vec::new();
    logs.iter().filter(|_| !patterns.is_empty()).for_each(|log| of_log(log, &patterns, &mut points));
    if !points.is_empty() {
        return points;
    }
    let found = run.and_then(|run| events_file(plan, run)).map(|place| of_files(&place)).unwrap_or_default();
    if !found.is_empty() {
        return found;
    }
    let place = command_of(records).and_then(|command| output_dir(&command));
    place.map(|place| of_trainer(&Path::new(&plan.directory).join(place))).unwrap_or_default()
}

/// The command that a run's records begin with.
fn command_of(records: &Path) -> Option<Vec<String>> {
    let mut line = Vec::new();
    BufReader::new(File::open(records).ok()?).take(LONGEST_IDENTITY).read_until(b'\n', &mut line).ok()?;
    match serde_json::from_slice(&line).ok()? {
        Record::Run(identity) => Some(identity.command),
        _ => None,
    }
}

/// The folder of a run's TensorBoard files.
fn events_file(plan: &Plan, run: &PlannedRun) -> Option<PathBuf> {
    let one = plan.planned_of(run);
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let changed = |name: &str| one.changes.iter().rfind(|(key, _)| key == name).map(|(_, value)| value.clone());
    let meaning = |name: &str| match name {
        "suite" => Some(plan.suite.clone()),
        "configuration" => Some(one.name.clone()),
        "seed" => Some(run.seed.to_string()),
        _ => one.parameters.get(name).map(text).or_else(|| changed(name)),
    };
    let filled = fill_names(&[plan.sources.tensorboard.clone()?], &meaning);
    Some(Path::new(&plan.directory).join(filled.first()?))
}

/// Points that lines of the output are, by the suite's patterns; of all attempts, of which the later count.
fn of_output(folder: &RunFolder, patterns: &[String]) -> Vec<Point> {
    let patterns: Vec<Pattern> = patterns.iter().map(|pattern| Pattern::read_patterns(pattern)).collect();
    let state = folder.state();
    let attempts = state
        .nodes
        .iter()
        .enumerate()
        .flat_map(|(node, state)| state.attempts.iter().map(move |one| (node, one.record.number)));
    let mut points = Vec::new();
    for (node, number) in attempts.filter(|_| !patterns.is_empty()) {
        for name in ["stdout.log", "stderr.log"] {
            of_log(&folder.attempt_path(node, number).join(name), &patterns, &mut points);
        }
    }
    points
}

/// Adds the points that lines of a log are.
fn of_log(path: &Path, patterns: &[Pattern], points: &mut Vec<Point>) {
    let Ok(file) = File::open(path) else { return };
    let mut input = BufReader::new(file);
    while points.len() < MOST_POINTS {
        let mut line = Vec::new();
        match input.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let found = patterns.iter().find_map(|pattern| pattern.read_line(&text));
        points.extend(found.map(|found| next_point(found, points.len())));
    }
}

/// A line's numbers as a point; without a step it is the next one.
fn next_point(mut found: BTreeMap<String, f64>, next: usize) -> Point {
    let mut take = |name: &str| found.remove(name);
    Point {
        step: take("step").unwrap_or(next as f64),
        seconds: take("seconds"),
        gpu_hours: take("gpu_hours"),
        tokens_generated: take("tokens_generated"),
        tokens_trained: take("tokens_trained"),
        flops: take("flops"),
        metrics: found,
    }
}

/// What files below `place` say, as points.
fn of_files(place: &Path) -> Vec<Point> {
    gather_runs(place, &Limits::default()).map(|gathered| of_runs(&gathered.runs)).unwrap_or_default()
}

/// Values of all series by their steps, in their order.
pub fn of_runs(runs: &[Run]) -> Vec<Point> {
    let mut steps: Vec<(f64, BTreeMap<String, f64>)> = Vec::new();
    let mut values: Vec<(f64, &str, f64)> = runs
        .iter()
        .flat_map(|run| &run.series)
        .flat_map(|(name, series)| series.points().map(move |(step, value)| (step, name.as_str(), value)))
        .collect();
    values.small_sort_by(|a, b| a.0.total_cmp(&b.0));
    for (step, name, value) in values.into_iter().take(MOST_POINTS) {
        if steps.last().is_none_or(|(last, _)| *last != step) {
            steps.push((step, BTreeMap::from([("step".to_owned(), step)])));
        }
        if let Some((_, found)) = steps.last_mut() {
            found.insert(name.to_owned(), value);
        }
    }
    steps.into_iter().map(|(_, found)| next_point(found, 0)).collect()
}

/// What the Trainer logged, by the newest checkpoint in `place`.
fn of_trainer(place: &Path) -> Vec<Point> {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix("checkpoint-")?.parse::<u64>().ok();
    let newest = entries.map(|entry| entry.path()).filter_map(|path| Some((number(&path)?, path))).max();
    newest.map(|(_, path)| of_files(&path.join("trainer_state.json"))).unwrap_or_default()
}
