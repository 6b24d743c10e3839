//! The records of a run that `tonnage report` reads: who it is, what it measured, how it ended. The script may write points itself
//! (`TONNAGE_METRICS`); else they are read from its output by the suite's patterns, or from the Trainer's state.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tonnage_experiment::record::{End, FORMAT, Identity, Memory, Point, Record};
use tonnage_experiment::source::{Limits, gather};
use tonnage_run::RunError;
use tonnage_run::store::{RunFolder, create_private_folder, write_atomically};

use crate::journal::Ended;
use crate::patterns::Pattern;
use crate::plan::PlannedRun;
use crate::runner::{Runner, word};

/// Points of a run; what writes more is no log of metrics.
const MOST_POINTS: usize = 1_000_000;
/// Bytes of a line of output that may be metrics.
const LONGEST_LINE: usize = 64 << 10;

/// What a script is told of where its metrics go.
pub(crate) struct RecordPaths {
    /// The file of records.
    pub records: PathBuf,
    /// Its parameters as JSON.
    pub parameters: PathBuf,
}

/// Makes a run's folder in the suite's, with who it is.
pub(crate) fn begin(
    runner: &Runner<'_>,
    run: &PlannedRun,
    folder: &RunFolder,
    gpus: &[String],
) -> Result<RecordPaths, RunError> {
    let place = place(runner, run);
    create_private_folder(&place)?;
    let paths = RecordPaths { records: place.join("records.jsonl"), parameters: place.join("parameters.json") };
    let one = runner.plan.configuration(run);
    let parameters =
        serde_json::to_vec_pretty(&one.parameters).map_err(|error| RunError::damaged(&paths.parameters, error))?;
    write_atomically(&paths.parameters, &parameters)?;
    if !paths.records.exists() {
        let record = Record::Run(Box::new(identity(runner, run, folder, gpus)));
        write_atomically(&paths.records, record.line().as_bytes())?;
    }
    Ok(paths)
}

fn place(runner: &Runner<'_>, run: &PlannedRun) -> PathBuf {
    runner.folder.path.join("runs").join(&run.id)
}

fn identity(runner: &Runner<'_>, run: &PlannedRun, folder: &RunFolder, gpus: &[String]) -> Identity {
    let one = runner.plan.configuration(run);
    let mut parameters = one.parameters.clone();
    parameters.extend(one.changes.iter().map(|(key, value)| (key.clone(), value.clone().into())));
    let versions = [("tonnage", env!("CARGO_PKG_VERSION")), ("git", runner.plan.code.as_str())];
    Identity {
        format: FORMAT,
        suite: runner.plan.suite.clone(),
        configuration: one.name.clone(),
        seed: Some(run.seed),
        command: folder.run().command.clone(),
        versions: versions.map(|(name, version)| (name.to_owned(), version.to_owned())).into(),
        gpu: one.predicted.as_ref().map(|predicted| predicted.gpu.clone()),
        gpus: one
            .predicted
            .as_ref()
            .map(|predicted| predicted.gpus)
            .or((!gpus.is_empty()).then_some(gpus.len() as u64)),
        parameters,
        shares_data_order: runner.shares_data_order,
        suite_file: Some(runner.text.clone()),
        ..Identity::default()
    }
}

/// Adds what the run measured, as far as it did not say so itself, and how it ended.
pub(crate) fn finish(runner: &Runner<'_>, run: &PlannedRun, folder: &RunFolder, end: &Ended) -> Result<(), RunError> {
    let path = place(runner, run).join("records.jsonl");
    let mut lines = String::new();
    if !has_points(&path) {
        let mut points = of_output(folder, &runner.metrics);
        if points.is_empty() {
            points = of_trainer(folder);
        }
        points.into_iter().for_each(|point| lines.push_str(&Record::Point(point).line()));
    }
    let memory =
        Memory { predicted_bytes: end.predicted_bytes, measured_bytes: end.measured_bytes, ..Memory::default() };
    if memory != Memory::default() {
        lines.push_str(&Record::Memory(memory).line());
    }
    let record = End {
        outcome: word(end.outcome).to_owned(),
        reason: end.reason.clone(),
        attempts: end.attempts,
        seconds: Some(end.seconds),
        lost_seconds: Some(end.lost_seconds),
        ..End::default()
    };
    lines.push_str(&Record::End(record).line());
    append(&path, &lines).map_err(|error| RunError::file(&path, error))
}

/// Adds whole lines; after a torn one, on a line of their own.
fn append(path: &Path, lines: &str) -> std::io::Result<()> {
    let is_torn = std::fs::read(path).is_ok_and(|text| text.last().is_some_and(|byte| *byte != b'\n'));
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(format!("{}{lines}", if is_torn { "\n" } else { "" }).as_bytes())
}

/// Whether the script wrote points itself.
fn has_points(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    BufReader::new(file).split(b'\n').skip(1).map_while(Result::ok).any(|line| {
        serde_json::from_slice::<Record>(&line).is_ok_and(|record| matches!(record, Record::Point(_) | Record::Item(_)))
    })
}

/// Points that lines of the output are, by the suite's patterns; of all attempts, of which the later count.
fn of_output(folder: &RunFolder, patterns: &[String]) -> Vec<Point> {
    let patterns: Vec<Pattern> = patterns.iter().map(|pattern| Pattern::read(pattern)).collect();
    let state = folder.state();
    let attempts = state
        .nodes
        .iter()
        .enumerate()
        .flat_map(|(node, state)| state.attempts.iter().map(move |one| (node, one.record.number)));
    let mut points = Vec::new();
    for (node, number) in attempts.filter(|_| !patterns.is_empty()) {
        for name in ["stdout.log", "stderr.log"] {
            let Ok(file) = File::open(folder.attempt_path(node, number).join(name)) else { continue };
            let mut input = BufReader::new(file);
            while points.len() < MOST_POINTS {
                let mut line = Vec::new();
                match input.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                }
                let text = String::from_utf8_lossy(&line);
                let found = patterns.iter().find_map(|pattern| pattern.read_line(&text));
                points.extend(found.map(|found| point(found, points.len())));
            }
        }
    }
    points
}

/// A line's numbers as a point; without a step it is the next one.
fn point(mut found: BTreeMap<String, f64>, next: usize) -> Point {
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

/// What the Trainer logged, by its newest checkpoint.
fn of_trainer(folder: &RunFolder) -> Vec<Point> {
    let Some(checkpoints) = &folder.run().policy.checkpoints else { return Vec::new() };
    let place = Path::new(&folder.run().folder).join(checkpoints);
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix("checkpoint-")?.parse::<u64>().ok();
    let newest = entries.map(|entry| entry.path()).filter_map(|path| Some((number(&path)?, path))).max();
    let Some(state) = newest.map(|(_, path)| path.join("trainer_state.json")) else { return Vec::new() };
    let Ok(gathered) = gather(&state, &Limits::default()) else { return Vec::new() };
    let mut points: BTreeMap<u64, BTreeMap<String, f64>> = BTreeMap::new();
    for (name, series) in gathered.runs.iter().flat_map(|run| &run.series) {
        for (step, value) in series.points() {
            points.entry(step.max(0.0) as u64).or_default().insert(name.clone(), value);
        }
    }
    let with_step = |(step, mut found): (u64, BTreeMap<String, f64>)| {
        found.insert("step".to_owned(), step as f64);
        point(found, 0)
    };
    points.into_iter().map(with_step).collect()
}
