//! A suite as it is typed: its file, what wins over it, and the jobs that its configurations are.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tonnage_core::job::keys;

use clap::Args;
use tonnage_core::job::{JobSource, Origin, Override};
use tonnage_core::limit::HAND_WRITTEN_BYTES;
use tonnage_core::plan::appraisal::appraise;
use tonnage_core::plan::time::{Scale, gpus_taken};
use tonnage_report::fit_words;
use tonnage_run::bounded::read_text;
use tonnage_suite::code::{Version, code_version};
use tonnage_suite::expand::{Configuration, Typed, expand_file, priced_suite, settle_all};
use tonnage_suite::file::SuiteFile;
use tonnage_suite::plan::{Making, Plan, Predicted};

use super::super::cost::{path_beside, placed_error};
use crate::failure::Failure;
use crate::job_args::JobArgs;
use crate::job_input::{gather_each, on_a_gpu, read_source};
use crate::sweep::sweep_items;
use crate::terminal::Terminal;

/// A suite's file, and what wins over it.
#[derive(Args, Clone, Debug)]
pub struct Source {
    /// The suite's file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Keys and parameters that win over the file: `a.b=1`; a list makes a configuration of each: `a=1,2`
    #[arg(value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Groups or configurations that are wanted; `all` is all
    #[arg(long = "suite", value_name = "NAME", value_delimiter = ',')]
    groups: Vec<String>,
}

/// A suite that was read.
pub struct Suite {
    /// What was typed beside the file.
    typed: Vec<String>,
    /// Groups that are wanted.
    groups: Vec<String>,
    pub file: SuiteFile,
    /// Its path, from anywhere.
    pub path: PathBuf,
    pub name: String,
    pub configurations: Vec<Configuration>,
    /// The job, where there is one.
    pub job: Option<JobSource>,
    /// The folder that commands run in.
    pub directory: PathBuf,
    /// The version of the code.
    pub code: Version,
}

impl Source {
    /// Of a plan that was kept: its file, and what was typed beside it.
    #[cfg(unix)]
    pub fn of_file(file: &Path, set: &[String], groups: &[String]) -> Self {
        Self { file: file.to_owned(), set: set.to_vec(), groups: groups.to_vec() }
    }

    /// Reads the file, and what it names.
    ///
    /// # Errors
    /// When something of it cannot be read, or does not hold.
    pub fn read_suite(&self) -> Result<Suite, Failure> {
        let shown = self.file.display().to_string();
        let text = read_text(&self.file, HAND_WRITTEN_BYTES).map_err(|error| Failure::about_file(&shown, &error))?;
        let at = |error| placed_error(&self.file, error);
        let file = SuiteFile::read(&text).map_err(at)?;
        let mut typed = Typed::read(&self.set, &self.groups)?;
        let job = job_source(&file, &self.file, &mut typed)?;
        let mut configurations = expand_file(&file, &typed).map_err(at)?;
        let changes = configurations.iter().flat_map(|one| &one.changes);
        let job = job.map(|job| gather_each(job, changes)).transpose()?.map(JobSource::pin);
        hold_typed(&file, &mut configurations, job.as_ref()).map_err(at)?;
        let stem = self.file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let name = file.called(&stem).map_err(at)?;
        let folder = match self.file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let directory = folder.join(file.directory.as_deref().unwrap_or("."));
        let directory = std::fs::canonicalize(&directory)
            .map_err(|error| Failure::about_file(&directory.display().to_string(), &error))?;
        let code = code_version(&file.code, &file.command, &directory)
            .map_err(|error| Failure::bad_input(format!("{shown}: code: {error}")))?;
        let path = std::path::absolute(&self.file).unwrap_or_else(|_| self.file.clone());
        let (typed, groups) = (self.set.clone(), self.groups.clone());
        Ok(Suite { typed, groups, file, path, name, configurations, job, directory, code })
    }
}

/// The job that configurations start from. A GPU that only its file or the driver tell of is read as of a flag.
fn job_source(file: &SuiteFile, path: &Path, typed: &mut Typed) -> Result<Option<JobSource>, Failure> {
    let Some(job) = &file.job else { return Ok(None) };
    let gpu = typed.take_one(keys::GPU).map(|gpu| Override::flag(keys::GPU, gpu));
    let args =
        JobArgs { model: Some(path_beside(path, job)), overrides: gpu.into_iter().collect(), ..JobArgs::default() };
    Ok(Some(on_a_gpu(read_source(&args)?, "a plan is held against a GPU")))
}

/// Rules and constraints of the file, and what every suite must hold of its jobs.
fn hold_typed(
    file: &SuiteFile,
    configurations: &mut [Configuration],
    job: Option<&JobSource>,
) -> Result<(), tonnage_core::job::JobError> {
    let Some(job) = job else { return settle_all(configurations, file, &|_, _| None) };
    // Many configurations differ in what only the command hears.
    let known = std::cell::RefCell::new(HashMap::new());
    let value = |changes: &[Override], key: &str| {
        let mut known = known.borrow_mut();
        let resolved = known.entry(said_changes(changes)).or_insert_with(|| job.resolve(changes).ok());
        // A job that cannot be is said later; what was said of it holds for the constraints.
        let Some(resolved) = resolved else {
            return changes.iter().rfind(|change| change.key == key).map(|change| change.value.clone());
        };
        let values = &resolved.provenance;
        values.iter().rfind(|value| value.key == key).map(|value| value.value.trim_matches('"').to_owned())
    };
    settle_all(configurations, file, &value)?;
    priced_suite(file, configurations).check(job)
}

/// Changes as one text, to know them again.
fn said_changes(changes: &[Override]) -> String {
    changes.iter().map(|change| format!("{}={}\n", change.key, change.value)).collect()
}

impl Suite {
    /// The plan.
    ///
    /// # Errors
    /// When the job that all start from cannot be.
    pub fn make_plan(&self, terminal: &Terminal) -> Result<Plan, Failure> {
        let said = match &self.job {
            Some(job) => said_of_job(job, &self.configurations)?,
            None => Vec::new(),
        };
        let making = Making {
            file: &self.file,
            path: &self.path,
            name: &self.name,
            configurations: &self.configurations,
            directory: &self.directory,
            code: &self.code,
            said: &said,
            typed: &self.typed,
            groups: &self.groups,
        };
        Ok(Plan::make_plan(&making, self.predict_jobs(terminal)))
    }

    /// What is predicted of each configuration; each distinct job is simulated once.
    fn predict_jobs(&self, terminal: &Terminal) -> Vec<Result<Option<Predicted>, String>> {
        let Some(job) = &self.job else { return vec![Ok(None); self.configurations.len()] };
        let mut distinct: Vec<&Configuration> = Vec::new();
        let mut index: HashMap<String, usize> = HashMap::new();
        let places: Vec<usize> = self
            .configurations
            .iter()
            .map(|one| {
                *index.entry(said_changes(&one.changes)).or_insert_with(|| {
                    distinct.push(one);
                    distinct.len() - 1
                })
            })
            .collect();
        let known = sweep_items(&distinct, terminal, |one| predict_job(job, &one.changes));
        places.into_iter().map(|at| known[at].clone().map(Some)).collect()
    }
}

fn predict_job(source: &JobSource, changes: &[Override]) -> Result<Predicted, String> {
    let job = source.resolve(changes).map_err(|error| error.to_string())?.job;
    let appraisal = appraise(&job, &job.gpu, Scale::own(&job)).map_err(|error| error.to_string())?;
    Ok(Predicted::of_appraisal(&appraisal, &job.gpu.id, fit_words(appraisal.verdict.fit), gpus_taken(&job)))
}

/// What a job file and flags say, which is part of every run's identity; not what nobody said.
fn said_of_job(source: &JobSource, configurations: &[Configuration]) -> Result<Vec<(String, String)>, Failure> {
    let first = configurations.first().map(|one| one.changes.clone()).unwrap_or_default();
    let resolved = source.resolve(&[]).or_else(|_| source.resolve(&first))?;
    let is_said = |origin: &Origin| matches!(origin, Origin::JobFile(_)) || origin.is_above_file();
    let values = resolved.provenance.iter().filter(|value| is_said(&value.origin));
    let model = (keys::MODEL.to_owned(), resolved.job.model.name.clone());
    Ok(values.map(|value| (value.key.clone(), value.value.clone())).chain([model]).collect())
}
