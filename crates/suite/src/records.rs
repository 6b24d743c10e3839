//! The records of a run that `tonnage report` reads: who it is, what it measured, how it ended. The script may write points itself
//! (`TONNAGE_METRICS`); else they are those of [`measured`].

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tonnage_experiment::record::{End, FORMAT, Identity, Memory, Record};
use tonnage_run::RunError;
use tonnage_run::store::{RunFolder, create_private_folder, write_atomically};

use crate::journal::Ended;
use crate::measured;
use crate::plan::PlannedRun;
use crate::runner::{Runner, word};

/// What a script is told of where its metrics go.
pub(crate) struct RecordPaths {
    /// The file of records.
    pub records: PathBuf,
    /// Its parameters as JSON.
    pub parameters: PathBuf,
}

/// Makes a run's folder in the suite's, with who it is.
pub(crate) fn begin_records(
    runner: &Runner<'_>,
    run: &PlannedRun,
    folder: &RunFolder,
    gpus: &[String],
) -> Result<RecordPaths, RunError> {
    let place = records_path(runner, run);
    create_private_folder(&place)?;
    let paths = RecordPaths { records: place.join("records.jsonl"), parameters: place.join("parameters.json") };
    let one = runner.plan.planned_of(run);
    let parameters =
        serde_json::to_vec_pretty(&one.parameters).map_err(|error| RunError::damaged(&paths.parameters, error))?;
    write_atomically(&paths.parameters, &parameters)?;
    if !paths.records.exists() {
        let record = Record::Run(Box::new(identity_record(runner, run, folder, gpus)));
        write_atomically(&paths.records, record.line().as_bytes())?;
    }
    Ok(paths)
}

fn records_path(runner: &Runner<'_>, run: &PlannedRun) -> PathBuf {
    runner.folder.path.join("runs").join(&run.id)
}

fn identity_record(runner: &Runner<'_>, run: &PlannedRun, folder: &RunFolder, gpus: &[String]) -> Identity {
    let one = runner.plan.planned_of(run);
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

/// How a run ended, as reports read it.
pub(crate) fn record_of_end(end: &Ended) -> End {
    End {
        outcome: word(end.outcome).to_owned(),
        reason: end.reason.clone(),
        attempts: end.attempts,
        seconds: Some(end.seconds),
        lost_seconds: Some(end.lost_seconds),
        ..End::default()
    }
}

/// Adds what the run measured, as far as it did not say so itself, and how it ended.
pub(crate) fn finish_records(
    runner: &Runner<'_>,
    run: &PlannedRun,
    folder: &RunFolder,
    end: &Ended,
) -> Result<(), RunError> {
    let path = records_path(runner, run).join("records.jsonl");
    let points = if has_points(&path) { Vec::new() } else { measured::measured_points(runner.plan, run, folder) };
    let mut lines: String = points.into_iter().map(|point| Record::Point(point).line()).collect();
    let is_measured = !lines.is_empty();
    let memory =
        Memory { predicted_bytes: end.predicted_bytes, measured_bytes: end.measured_bytes, ..Memory::default() };
    if memory != Memory::default() {
        lines.push_str(&Record::Memory(memory).line());
    }
    lines.push_str(&Record::End(record_of_end(end)).line());
    if !is_measured {
        return append_lines(&path, &lines).map_err(|error| RunError::file(&path, error));
    }
    // As a whole or not at all: half of the points would be taken for what the script wrote itself.
    let before = std::fs::read(&path).map_err(|error| RunError::file(&path, error))?;
    let gap = if before.last().is_some_and(|byte| *byte != b'\n') { "\n" } else { "" };
    write_atomically(&path, &[before.as_slice(), gap.as_bytes(), lines.as_bytes()].concat())
}

/// Adds whole lines; after a torn one, on a line of their own.
pub(crate) fn append_lines(path: &Path, lines: &str) -> std::io::Result<()> {
    let is_torn = std::fs::read(path).is_ok_and(|text| text.last().is_some_and(|byte| *byte != b'\n'));
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(format!("{}{lines}", if is_torn { "\n" } else { "" }).as_bytes())
}

/// Whether there are points: those that the script wrote itself.
pub(crate) fn has_points(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    BufReader::new(file).split(b'\n').skip(1).map_while(Result::ok).any(|line| {
        serde_json::from_slice::<Record>(&line).is_ok_and(|record| matches!(record, Record::Point(_) | Record::Item(_)))
    })
}
