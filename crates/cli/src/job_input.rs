//! From what was typed to a job's source: job files, configs and what lies beside them, GPUs and environments are read here,
//! once.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use tonnage_config::Reading;
use tonnage_core::estimate::{EstimateError, SimulatedJob};
use tonnage_core::job::keys::{
    DATA_TRAIN_FILES, GKD_TEACHER_MODEL, GPU, JUDGE_MODEL, MODEL, PPO_REWARD_MODEL, PPO_VALUE_MODEL,
};
use tonnage_core::job::{
    ConfigSource, JobSource, JobText, Key, Lookup, Origin, Override, Preset, Resolved, UnnamedGpu, WeightsBeside,
};
use tonnage_core::limit::{HAND_WRITTEN_BYTES, JSON_BYTES};
use tonnage_core::plan::fits_from;
use tonnage_core::record::JobRecord;
use tonnage_report::text;
use tonnage_run::bounded::read_text;

use crate::config_input;
use crate::failure::Failure;
use crate::gpu_input;
use crate::hub_cache::{self, Snapshot};
use crate::installed;
use crate::job_args::JobArgs;
use crate::patched::patch_toml;
use crate::terminal::Terminal;
use crate::weights::weights_beside;

/// How a GPU is named.
pub const NAME_A_GPU: &str = "name it: --gpu l4 (`tonnage gpus` lists those that are known), --gpu 24GiB, or --gpu live for the one in \
                              this machine";

/// The field of a config that says what a model is which nobody named.
const MODEL_TYPE: &str = "model.model_type";

/// All that `args` name.
///
/// # Errors
/// When nothing is named or a file cannot be read.
pub fn read_source(args: &JobArgs) -> Result<JobSource, Failure> {
    let (source, reading) = read_job(args)?;
    // Of objects nobody waits for a line on a terminal.
    if let Some(reading) = reading.filter(|_| args.handed.objects.is_empty()) {
        let terminal = Terminal::detect();
        terminal.tell(&text::config_lines(&reading, &terminal.look));
    }
    Ok(source)
}

/// The same, with what became of the keys of trainers' configs where some were given.
///
/// # Errors
/// When nothing is named or a file cannot be read.
pub fn read_job(args: &JobArgs) -> Result<(JobSource, Option<Reading>), Failure> {
    // The module hands over objects, the command line names files; nobody does both.
    let reading = config_input::read_configs(&args.from)?.or(config_input::read_handed(&args.handed.objects)?);
    let mut overrides = args.overrides.clone();
    let file = match (&args.model, &args.small_gpt) {
        (Some(path), _) if is_job_file(path) => {
            let text = read_text(path, HAND_WRITTEN_BYTES).map_err(|error| Failure::about_file(path, &error))?;
            Some(JobText { name: path.clone(), text })
        }
        (Some(model), _) => {
            overrides.insert(0, Override::new(MODEL, model, Origin::Flag("MODEL".to_owned())));
            None
        }
        (None, None) if overrides.iter().any(|given| given.key == MODEL_TYPE) => None,
        (None, None) if reading.as_ref().is_some_and(|reading| reading.model().is_some()) => None,
        (None, None) if reading.is_some() => return Err(config_input::no_model()),
        (None, Some(text)) => Some(JobText { name: "flags of a small GPT".to_owned(), text: text.clone() }),
        (None, None) => {
            let failure = Failure::bad_input("no model is given");
            return Err(failure.with_hint("name one: `tonnage estimate gpt2`; `tonnage models` lists those built in"));
        }
    };
    let handed = &args.handed;
    let installed =
        handed.environment.as_deref().map_or_else(installed::active_transformers, installed::transformers_in);
    let mut source = JobSource::new().with(&overrides).installed(installed).noted(handed.notes.iter().cloned());
    source.file = file;
    let configs = handed.configs.iter().cloned();
    let mut source = configs.fold(source, |source, (name, config)| source.config(name, config));
    let Some(reading) = reading else { return Ok((gather_source(source, &[])?, None)) };
    if source.file.is_some() {
        return Err(config_input::beside_a_job_file());
    }
    // What a config says lies below what was typed.
    let typed = std::mem::take(&mut source.overrides);
    source = gather_source(source.with(reading.changes()).with(&typed), &[])?;
    source.overrides = typed;
    Ok((reading.as_source(source)?, Some(reading)))
}

/// A job that was recorded; its configs are read again.
///
/// # Errors
/// When a GPU's file cannot be read.
pub fn recorded_source(record: &JobRecord) -> Result<JobSource, Failure> {
    gather_source(record.source(), &[])
}

/// The same with what the job with `changes` names besides.
///
/// # Errors
/// When a GPU's file cannot be read.
pub fn gather_source(mut source: JobSource, changes: &[Override]) -> Result<JobSource, Failure> {
    let file = source.file.as_ref().map(|file| Path::new(&file.name).to_owned());
    let folder = file.as_deref().and_then(Path::parent);
    for lookup in source.lookups(changes) {
        source = match lookup {
            Lookup::Model(name) => match config_named(folder, &name) {
                Some(config) => source.config(name, config),
                None => source,
            },
            Lookup::Data(name) => match first_line(folder, &name) {
                Some(line) => source.first_line(name, line),
                None => source,
            },
            Lookup::Gpu(name) => match gpu_input::special_gpu(&name).transpose()? {
                Some(gpu) => source.gpu(name, gpu),
                None => source,
            },
        };
    }
    Ok(source)
}

/// The same with what each of `changes` names by itself.
///
/// # Errors
/// When a GPU's file cannot be read.
pub fn gather_each<'a>(
    source: JobSource,
    changes: impl IntoIterator<Item = &'a Override>,
) -> Result<JobSource, Failure> {
    // A suite sets many keys in thousands of configurations; few of them name a file.
    let is_looked_up = |given: &&Override| Key::called(&given.key).is_some_and(|key| LOOKED_UP.contains(&key.name));
    let mut distinct: Vec<&Override> = Vec::new();
    for given in changes.into_iter().filter(is_looked_up) {
        if !distinct.iter().any(|known| (&known.key, &known.value) == (&given.key, &given.value)) {
            distinct.push(given);
        }
    }
    distinct.into_iter().try_fold(source, |source, change| gather_source(source, std::slice::from_ref(change)))
}

/// The keys whose values may name what only files or a driver tell of.
const LOOKED_UP: [&str; 7] =
    [MODEL, JUDGE_MODEL, GKD_TEACHER_MODEL, PPO_REWARD_MODEL, PPO_VALUE_MODEL, GPU, DATA_TRAIN_FILES];

/// The first line of a file of data that is not empty: from the working folder, or from the job file's.
fn first_line(folder: Option<&Path>, name: &str) -> Option<String> {
    let beside = || folder.map(|folder| folder.join(name));
    let path = Some(Path::new(name).to_owned()).filter(|path| path.exists()).or_else(beside)?;
    let mut lines = BufReader::new(File::open(path).ok()?.take(JSON_BYTES)).lines();
    lines.find_map(|line| line.ok().filter(|line| !line.trim().is_empty()))
}

/// The same job for an answer that `asks` for a GPU: where nobody names one it is this machine's.
pub fn on_a_gpu(source: JobSource, asks: &str) -> JobSource {
    let found = gpu_input::special_gpu(gpu_input::LIVE).and_then(Result::ok);
    source.unnamed_gpu(match found {
        Some(gpu) => {
            UnnamedGpu::Found { gpu: Box::new(gpu), origin: Origin::Flag("--gpu live, as none was named".to_owned()) }
        }
        None => UnnamedGpu::Refused {
            problem: format!("{asks}: no GPU is named, and NVML shows none in this machine"),
            hint: NAME_A_GPU.to_owned(),
        },
    })
}

/// The same job in the environment of the program that runs it, where it has one.
pub fn run_by(source: JobSource, program: &OsStr) -> JobSource {
    let active = source.installed.clone();
    source.installed(installed::transformers_beside(program).or(active))
}

/// The text of a job file that says all that was typed, and `changes`.
///
/// # Errors
/// When the job file cannot take them.
pub fn job_file_text(source: &JobSource, changes: &[Override]) -> Result<String, Failure> {
    let text = source.file.as_ref().map_or("", |file| file.text.as_str());
    patch_toml(text, &[source.written_overrides().as_slice(), changes].concat())
}

/// Simulates what was resolved; an error says where the key or the model's field stands.
///
/// # Errors
/// When the model cannot be built.
pub fn simulate_resolved(resolved: &Resolved) -> Result<SimulatedJob<'_>, Failure> {
    SimulatedJob::new(&resolved.job).map_err(|error| located(&error, resolved))
}

/// The same of a job that names no GPU, ready for the list of those that carry it.
///
/// # Errors
/// As above.
pub fn simulate_for_catalog(resolved: &Resolved) -> Result<SimulatedJob<'_>, Failure> {
    fits_from::simulate_for_catalog(&resolved.job).map_err(|error| located(&error, resolved))
}

/// With the place in the job at which it was said.
fn located(error: &EstimateError, resolved: &Resolved) -> Failure {
    match (error.field(), error.job()) {
        (Some(field), _) => resolved.locate(field).into(),
        (None, Some(refused)) => resolved.locate_job(refused.clone()).into(),
        (None, None) => error.clone().into(),
    }
}

fn is_job_file(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"))
}

/// The config that `name` stands for: beside the job file, as a path, or in the hub cache; with what lies beside it.
fn config_named(folder: Option<&Path>, name: &str) -> Option<ConfigSource> {
    let beside_job = folder.map(|folder| folder.join(name)).filter(|path| {
        // The working folder's comes first.
        Path::new(name).is_relative() && !Path::new(name).exists() && path.exists()
    });
    let found = beside_job.as_deref().and_then(config_at).or_else(|| config_at(Path::new(name)));
    found.or_else(|| Some(cached_config(name, &hub_snapshot(name)?)))
}

/// The config at `path`: a file, or a folder with a `config.json`.
fn config_at(path: &Path) -> Option<ConfigSource> {
    let text = read_config(path)?;
    Some(ConfigSource { weights: readable_weights(path, &text), text, note: None })
}

fn cached_config(name: &str, snapshot: &Snapshot) -> ConfigSource {
    let (revision, place) = (snapshot.short_commit(), snapshot.folder.display());
    let note = format!("the config of {name} is that of revision {revision} in the hub cache: {place}");
    let text = snapshot.read_config();
    ConfigSource { weights: readable_weights(&snapshot.folder, &text), text, note: Some(note) }
}

fn readable_weights(path: &Path, config: &Result<String, String>) -> WeightsBeside {
    if config.is_ok() { weights_beside(path) } else { WeightsBeside::Absent }
}

/// The model in the hub cache, unless one of that name is built in.
fn hub_snapshot(name: &str) -> Option<Snapshot> {
    if Preset::find(name).is_some() { None } else { hub_cache::find_snapshot(name) }
}

/// The text of the config at `path`; `None` where the name is a published model's.
fn read_config(path: &Path) -> Option<Result<String, String>> {
    let file = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    let name = path.to_string_lossy();
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
