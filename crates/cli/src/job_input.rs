//! From what was typed to a resolved job: reads job files and configs.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tonnage_core::estimate::SimulatedJob;
use tonnage_core::job::{Counted, Inputs, JobError, Origin, Override, Preset, Resolved, resolve};
use tonnage_core::limit::{HAND_WRITTEN_BYTES, JSON_BYTES};
use tonnage_core::record::JobRecord;
use tonnage_run::bounded::read_text;

use crate::failure::Failure;
use crate::gpu_input::{self, Special};
use crate::hub_cache::{self, Snapshot};
use crate::installed::Installed;
use crate::job_args::JobArgs;
use crate::patched::patched;
use crate::weights::{self, Weights};

/// A job that was typed, with its job file read, ready to be resolved with further changes.
pub struct JobInput {
    file: Option<(String, String)>,
    overrides: Vec<Override>,
    /// A GPU that only its file or the driver can tell of, with what was typed.
    gpu: Option<(String, Special)>,
    /// What the weights beside a config hold, by the model's name: headers are read once.
    weights: Mutex<HashMap<String, Option<Weights>>>,
    /// The transformers that the job will find, which decides where nobody says.
    installed: Option<Installed>,
    /// The GPU where nobody names one; `None` where the answer needs none.
    unnamed: Option<Unnamed>,
}

/// The GPU of a job that names none, for an answer that is about one.
struct Unnamed {
    /// Of this machine, as it was written out, where NVML or the driver knows one.
    found: Option<(Override, Special)>,
    /// What asks.
    asks: &'static str,
}

/// How a GPU is named.
pub const NAME_A_GPU: &str = "name it: --gpu l4 (`tonnage gpus` lists those that are known), --gpu 24GiB, or --gpu live for the one in \
                              this machine";

impl JobInput {
    /// Reads what `args` name.
    ///
    /// # Errors
    /// When nothing is named or a job file cannot be read.
    pub fn read(args: &JobArgs) -> Result<Self, Failure> {
        let mut overrides = args.overrides.clone();
        let file = match (&args.model, &args.small_gpt) {
            (Some(path), _) if is_job_file(path) => {
                let text = read_text(path, HAND_WRITTEN_BYTES).map_err(|error| Failure::file(path, &error))?;
                Some((path.clone(), text))
            }
            (Some(model), _) => {
                let model = Override { key: "model".to_owned(), value: model.clone(), flag: "MODEL".to_owned() };
                overrides.insert(0, model);
                None
            }
            (None, None) if overrides.iter().any(|given| given.key == MODEL_TYPE) => None,
            (None, Some(text)) => Some(("flags of a small GPT".to_owned(), text.clone())),
            (None, None) => {
                let failure = Failure::input("no model is given");
                return Err(failure.hint("name one: `tonnage estimate gpt2`; `tonnage models` lists those built in"));
            }
        };
        let gpu = special_gpu(&mut overrides)?;
        Ok(Self { file, overrides, gpu, weights: Mutex::default(), installed: Installed::active(), unnamed: None })
    }

    /// A job that was recorded.
    pub fn of_record(record: &JobRecord) -> Self {
        // A GPU from a file was recorded by its figures, which resolve like a name.
        Self {
            file: record.file.clone().zip(record.text.clone()),
            overrides: record.overrides(),
            gpu: None,
            weights: Mutex::default(),
            installed: None,
            unnamed: None,
        }
    }

    /// The same job for an answer that `asks` for a GPU: where nobody names one it is this machine's.
    #[must_use]
    pub fn on_a_gpu(mut self, asks: &'static str) -> Self {
        let found = gpu_input::special(gpu_input::LIVE).and_then(Result::ok);
        let found = found.map(|special| {
            let value = gpu_input::written(&special.gpu);
            (Override { key: "gpu".to_owned(), value, flag: "--gpu live, as none was named".to_owned() }, special)
        });
        self.unnamed = Some(Unnamed { found, asks });
        self
    }

    /// The GPU of this machine, where it stands in for one that nobody named.
    fn found_for(&self, resolved: &Resolved) -> Option<&(Override, Special)> {
        let found = self.unnamed.as_ref()?.found.as_ref()?;
        (resolved.origin("gpu") == Some(&Origin::Flag(found.0.flag.clone()))).then_some(found)
    }

    /// What is recorded of it, `resolved` being what it came to.
    pub fn record(&self, resolved: &Resolved) -> JobRecord {
        let file = self.file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
        let installed = match resolved.origin(TRANSFORMERS) {
            Some(Origin::Installed(_)) => self.installed.as_ref().and_then(as_override),
            _ => None,
        };
        let found = self.found_for(resolved).map(|(given, _)| given.clone());
        let overrides: Vec<_> = installed.into_iter().chain(found).chain(self.overrides.iter().cloned()).collect();
        JobRecord::new(file, &overrides, resolved)
    }

    /// Name and text of the job file.
    pub const fn file(&self) -> Option<&(String, String)> {
        self.file.as_ref()
    }

    /// The job with `changes` on top.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn resolve(&self, changes: &[Override]) -> Result<Resolved, Failure> {
        self.try_resolve(changes).map_err(Failure::from)
    }

    /// The same, with the error as a value.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn try_resolve(&self, changes: &[Override]) -> Result<Resolved, JobError> {
        self.resolve_all(&[self.overrides.as_slice(), changes].concat())
    }

    /// The job with `changes` below what was typed, which wins.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn try_resolve_under(&self, changes: &[Override]) -> Result<Resolved, JobError> {
        // The model comes first: naming one sets its fields anew.
        let (model, others): (Vec<_>, Vec<_>) = self.overrides.iter().cloned().partition(|given| given.key == "model");
        self.resolve_all(&[model.as_slice(), changes, others.as_slice()].concat())
    }

    /// The text of a job file that says all that was typed, and `changes`.
    ///
    /// # Errors
    /// When the job file cannot take them.
    pub fn job_file(&self, changes: &[Override]) -> Result<String, Failure> {
        let text = self.file.as_ref().map_or("", |(_, text)| text.as_str());
        patched(text, &[self.overrides.as_slice(), changes].concat())
    }

    fn resolve_all(&self, overrides: &[Override]) -> Result<Resolved, JobError> {
        let mut resolved = self.resolve_installed(overrides)?;
        if let (false, Some(unnamed)) = (resolved.names_gpu(), &self.unnamed) {
            let Some((given, special)) = &unnamed.found else { return Err(unnamed.refusal()) };
            resolved = self.resolve_installed(&[std::slice::from_ref(given), overrides].concat())?;
            special.put_into(&mut resolved);
        }
        let named_later = overrides.iter().rfind(|given| given.key == "gpu").map(|given| given.value.as_str());
        if let Some((written, special)) = &self.gpu
            && named_later == Some(written)
        {
            special.put_into(&mut resolved);
        }
        self.count_weights(&mut resolved)?;
        Ok(resolved)
    }

    /// Notes what the weights beside the config hold, unless the job changes the config's fields.
    fn count_weights(&self, resolved: &mut Resolved) -> Result<(), JobError> {
        if resolved.provenance.iter().any(|value| value.key.starts_with("model.")) {
            return Ok(());
        }
        let model = &mut resolved.job.model;
        let mut known = self.weights.lock().unwrap_or_else(PoisonError::into_inner);
        let weights = match known.get(&model.name) {
            Some(weights) => weights,
            None => {
                let snapshot = hub_snapshot(&model.name).filter(|_| !Path::new(&model.name).exists());
                let place = snapshot.map_or_else(|| PathBuf::from(&model.name), |snapshot| snapshot.folder);
                let found = weights::beside(&place);
                let found =
                    found.map_err(|failure| JobError { hint: failure.hint, ..JobError::new(failure.problem) })?;
                known.entry(model.name.clone()).or_insert(found)
            }
        };
        match weights {
            Some(Weights::Counted(parameters)) => {
                let who = "the safetensors file beside its config holds";
                model.beside.counted = Some(Counted { parameters: *parameters, who });
            }
            Some(Weights::Incomplete(missing)) => {
                resolved.notes.push(format!("the parameter count could not be checked: {missing} is not there"));
            }
            None => {}
        }
        Ok(())
    }

    /// The same job in the environment of the program that runs it, where it has one.
    #[must_use]
    pub fn run_by(mut self, program: &OsStr) -> Self {
        self.installed = Installed::beside(program).or(self.installed);
        self
    }

    /// Where nobody says a version of transformers, the installed one decides.
    fn resolve_installed(&self, overrides: &[Override]) -> Result<Resolved, JobError> {
        let resolved = self.resolve_said(overrides)?;
        let Some(installed) = &self.installed else { return Ok(resolved) };
        if !matches!(resolved.origin(TRANSFORMERS), Some(Origin::Default(_))) {
            return Ok(resolved);
        }
        let place = installed.environment.display().to_string();
        let Some(said) = as_override(installed) else {
            let mut resolved = resolved;
            resolved.notes.push(format!(
                "transformers {} in {place} is not simulated: the answer is for {}",
                installed.version, resolved.job.transformers
            ));
            return Ok(resolved);
        };
        let mut resolved = self.resolve_said(&[&[said], overrides].concat())?;
        for value in resolved.provenance.iter_mut().filter(|value| value.key == TRANSFORMERS) {
            value.origin = Origin::Installed(place.clone());
        }
        Ok(resolved)
    }

    fn resolve_said(&self, overrides: &[Override]) -> Result<Resolved, JobError> {
        let folder = self.file.as_ref().and_then(|(name, _)| Path::new(name).parent());
        let from_cache = RefCell::new(Vec::new());
        let cached = |name: &str| {
            let snapshot = hub_snapshot(name)?;
            let config = snapshot.config();
            from_cache.borrow_mut().push(format!(
                "the config of {name} is that of revision {} in the hub cache: {}",
                snapshot.short(),
                snapshot.folder.display()
            ));
            Some(config)
        };
        let mut resolved = resolve(&Inputs {
            job_file: self.file.as_ref().map(|(name, text)| (name.as_str(), text.as_str())),
            overrides,
            read_config: &|name| beside(folder, name).or_else(|| read_config(name)).or_else(|| cached(name)),
        })?;
        for note in from_cache.into_inner() {
            if !resolved.notes.contains(&note) {
                resolved.notes.push(note);
            }
        }
        Ok(resolved)
    }
}

impl Special {
    /// Makes it the job's, with what the answer must say of it.
    fn put_into(&self, resolved: &mut Resolved) {
        resolved.job.gpu = self.gpu.clone();
        resolved.notes.extend(self.caveat.clone());
    }
}

impl Unnamed {
    fn refusal(&self) -> JobError {
        let nobody = "no GPU is named, and NVML shows none in this machine";
        JobError::new(format!("{}: {nobody}", self.asks)).hint(NAME_A_GPU)
    }
}

/// The field of a config that says what a model is which nobody named.
const MODEL_TYPE: &str = "model.model_type";

/// The key that an environment decides where nobody does.
const TRANSFORMERS: &str = "transformers";

/// Major and minor, as the default is written: a job is the same one in an environment and outside it.
fn as_override(installed: &Installed) -> Option<Override> {
    let value = installed.parsed()?.to_string();
    Some(Override { key: TRANSFORMERS.to_owned(), value, flag: installed.environment.display().to_string() })
}

/// Simulates what was resolved; an error says where the key or the model's field stands.
///
/// # Errors
/// When the model cannot be built.
pub fn simulate(resolved: &Resolved) -> Result<SimulatedJob<'_>, Failure> {
    SimulatedJob::new(&resolved.job).map_err(|error| match (error.field(), error.job()) {
        (Some(field), _) => resolved.locate(field).into(),
        (None, Some(refused)) => resolved.locate_job(refused.clone()).into(),
        (None, None) => error.into(),
    })
}

/// A GPU of a file or of this machine, in whose place `overrides` then name one with the same memory and kernels.
fn special_gpu(overrides: &mut [Override]) -> Result<Option<(String, Special)>, Failure> {
    let Some(given) = overrides.iter_mut().rfind(|given| given.key == "gpu") else { return Ok(None) };
    let Some(special) = gpu_input::special(&given.value) else { return Ok(None) };
    let special = special?;
    given.value = gpu_input::written(&special.gpu);
    Ok(Some((given.value.clone(), special)))
}

fn is_job_file(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"))
}

/// The config that a job file names by a path from its own folder, where the working folder has none of that name.
fn beside(folder: Option<&Path>, name: &str) -> Option<Result<String, String>> {
    let path = folder?.join(name);
    let elsewhere = Path::new(name).is_relative() && !Path::new(name).exists() && path.exists();
    elsewhere.then(|| read_config(&path.to_string_lossy())).flatten()
}

/// The model in the hub cache, unless one of that name is built in.
fn hub_snapshot(name: &str) -> Option<Snapshot> {
    if Preset::find(name).is_some() { None } else { hub_cache::find(name) }
}

/// The config that `name` stands for as a path: a file, or a folder with a `config.json`.
fn read_config(name: &str) -> Option<Result<String, String>> {
    let path = Path::new(name);
    let file = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    // A name with neither a file nor the look of a path is a published model's.
    let looks_like_a_path = name.starts_with(['.', '/', '~']) || name.ends_with(".json");
    if !(file.exists() || path.is_dir() || looks_like_a_path) {
        return None;
    }
    Some(read_text(&file, JSON_BYTES).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("{} does not exist", file.display()),
        _ => error.to_string().to_lowercase(),
    }))
}
