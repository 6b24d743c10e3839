//! The metrics of a suite's runs for other programs, once or while the suite runs. A format is a file here and a line in [`FORMATS`].

mod csv;
mod names;
mod tensorboard;
mod wandb;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use tonnage_core::small_sort::SmallSort;

use tonnage_experiment::record::{Point, Record};
use tonnage_experiment::run::Run;
use tonnage_experiment::source::{Limits, gather_runs};
use tonnage_run::RunError;
use tonnage_run::store::{RunFolder, Store};

use crate::folder::SuiteFolder;
use crate::journal::{State, Where};
use crate::measured;
use crate::plan::{Plan, PlannedRun};
use crate::slurm::evidence::Evidence;
use crate::system::{Look, read_looks};

/// What a run measured so far.
pub struct Measured {
    pub id: String,
    /// What is known of it; without the system metrics.
    pub run: Run,
    /// What machine and GPUs did meanwhile.
    pub looks: Vec<Look>,
    /// When it was made, in seconds since 1970.
    pub began: f64,
    /// Whether nothing more will come.
    pub has_ended: bool,
}

impl Measured {
    /// The metrics, a row a step.
    pub fn points(&self) -> Vec<Point> {
        measured::of_runs(std::slice::from_ref(&self.run))
    }
}

/// Where and how a format is written.
#[derive(Clone, Debug)]
pub struct Target {
    pub folder: PathBuf,
    /// The Python of formats that need one.
    pub python: PathBuf,
}

/// Takes what runs measured, as often as there is more.
pub trait Sink {
    /// Writes what is new of all runs.
    ///
    /// # Errors
    /// When it cannot be written.
    fn take(&mut self, runs: &[Measured]) -> io::Result<()>;

    /// Nothing more will come; what was written, in words.
    ///
    /// # Errors
    /// When it cannot be written, or whoever took it says that it was not.
    fn finish(&mut self) -> io::Result<String>;
}

pub struct Format {
    /// Its name on the command line.
    pub name: &'static str,
    /// Begins to write.
    pub begin: fn(&Target) -> io::Result<Box<dyn Sink>>,
}

pub const FORMATS: &[Format] = &[
    Format { name: "tensorboard", begin: tensorboard::begin },
    Format { name: "csv", begin: csv::begin },
    Format { name: "wandb", begin: wandb::begin },
];

/// What the runs of a suite measured so far, and what could not be read.
///
/// # Errors
/// When its folder cannot be read.
pub fn measured_of(suite: &SuiteFolder, store: &Store) -> Result<(Vec<Measured>, Vec<String>), RunError> {
    let (plan, state) = (suite.read_plan()?, suite.journal.read_state()?);
    let place = suite.path.join("runs");
    let gathered = gather_runs(&place, &Limits::default()).map_err(|error| RunError::file(&place, error))?;
    let mut found: HashMap<String, Run> = HashMap::new();
    for run in gathered.runs {
        let id = run.place.split('/').next().unwrap_or_default().to_owned();
        found.entry(id).or_insert(run);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all = Vec::new();
    for run in &plan.runs {
        all.extend(export_one(suite, store, (&plan, &state), run, found.remove(&run.id), cores));
    }
    // Runs of an earlier plan keep what they measured.
    let mut others: Vec<(String, Run)> = found.into_iter().collect();
    others.small_sort_by(|a, b| a.0.cmp(&b.0));
    all.extend(others.into_iter().map(|(id, run)| {
        let looks = read_looks(&suite.path, &id, None, cores);
        let began = looks.first().map_or(0.0, |look| look.at_ms as f64 / 1e3 - look.seconds);
        Measured { has_ended: run.end.is_some(), id, run, looks, began }
    }));
    // What has measured nothing yet says so in its file; that is no fault.
    let is_fault = |why: &str| !why.contains("no points in it");
    let not_read = gathered.not_read.into_iter().filter(|one| is_fault(&one.why));
    Ok((all, not_read.map(|one| format!("{}: {}", one.file, one.why)).collect()))
}

/// What one run measured: what its records say, or else what can be read of it while it runs.
fn export_one(
    suite: &SuiteFolder,
    store: &Store,
    (plan, state): (&Plan, &State),
    planned: &PlannedRun,
    found: Option<Run>,
    cores: usize,
) -> Option<Measured> {
    let known = state.runs.get(&planned.id)?;
    let folder = RunFolder::open(store.root().join("runs").join(&known.run)).ok();
    let has_ended = matches!(state.where_is(&planned.id), Where::Ended(_));
    let run = match found {
        Some(run) if !run.series.is_empty() || has_ended => run,
        _ => live_run(suite, plan, planned, folder.as_ref()?)?,
    };
    let looks = read_looks(&suite.path, &planned.id, folder.as_ref(), cores);
    let began = match &folder {
        Some(folder) => folder.run().created_ms as f64 / 1e3,
        // Of what was sent to SLURM, when its first start began, by its node's clock; it may have waited for long.
        None => {
            let starts = Evidence::read_evidence(&suite.path.join("runs").join(&planned.id)).starts;
            starts.first().map_or(known.started_ms as f64 / 1e3, |start| start.began)
        }
    };
    (!run.series.is_empty() || !looks.is_empty()).then(|| Measured {
        id: planned.id.clone(),
        run,
        looks,
        began,
        has_ended,
    })
}

/// A run that writes no points itself, while it runs.
fn live_run(suite: &SuiteFolder, plan: &Plan, planned: &PlannedRun, folder: &RunFolder) -> Option<Run> {
    let text = std::fs::read_to_string(suite.path.join("runs").join(&planned.id).join("records.jsonl")).ok()?;
    let Ok(Record::Run(identity)) = serde_json::from_str(text.lines().next()?) else { return None };
    let mut run = Run { place: planned.id.clone(), identity: *identity, nodes: 1, ..Run::default() };
    for (number, point) in measured::measured_points(plan, planned, folder).into_iter().enumerate() {
        let axes = [
            ("seconds", point.seconds),
            ("gpu_hours", point.gpu_hours),
            ("tokens_generated", point.tokens_generated),
            ("tokens_trained", point.tokens_trained),
            ("flops", point.flops),
        ];
        let axes = axes.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        axes.chain(point.metrics).for_each(|(name, value)| run.push(&name, point.step, value, number));
    }
    run.finish();
    Some(run)
}

/// Writes a file aside and moves it into place.
fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let aside = path.with_extension(format!("tmp-{}", std::process::id()));
    std::fs::write(&aside, bytes)?;
    std::fs::rename(&aside, path)
}
