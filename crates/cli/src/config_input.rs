//! `--from KIND FILE`: configs of trainers from words of the command line to what their keys come to.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Map, Value};
use tonnage_config::{ConfigText, KINDS, Kind, Object, Reading, read_files, read_objects};
use tonnage_core::limit::HAND_WRITTEN_BYTES;
use tonnage_run::bounded::read_text;

use crate::failure::Failure;

/// Files of one job: configs that name each other in a ring end here.
const MOST_FILES: usize = 16;
/// Ends of names that a model never has.
const ENDS: [&str; 9] = [".yaml", ".yml", ".json", ".toml", ".sh", ".slurm", ".sbatch", ".py", ".ipynb"];

/// `--from KIND FILE`
pub fn config_flag() -> Arg {
    let kinds: String = KINDS.iter().map(|(_, name, what)| format!("\n- {name}: {what}")).collect();
    Arg::new("from")
        .long("from")
        .value_name("[KIND] FILE")
        .action(ArgAction::Append)
        .num_args(1..)
        .help("Reads a trainer's config: trl, trainer, accelerate, deepspeed, axolotl, llama-factory, ...")
        .long_help(format!(
            "Reads a trainer's config as the job; again for several files that belong together. What is typed beside it goes before \
             what it says. Without a kind it is told by its keys.\n\nKinds:{kinds}"
        ))
        .hide_short_help(true)
        .help_heading("Job")
}

/// Configs with their kinds, and the model that may stand behind them.
type Typed = (Vec<(Option<Kind>, String)>, Option<String>);

/// The files that were typed, each with its kind, and a model's name among them.
pub fn typed_configs(matches: &ArgMatches) -> Result<Typed, clap::Error> {
    let mut files = Vec::new();
    let mut model = None;
    for words in matches.get_occurrences::<String>("from").into_iter().flatten() {
        let mut kind = None;
        let mut any = false;
        for word in words {
            match Kind::find_kind(word) {
                Some(found) if kind.is_none() => kind = Some(found),
                _ if is_file(word) => {
                    files.push((kind.take(), word.clone()));
                    any = true;
                }
                // Behind the file stands the model.
                _ if any && model.is_none() => model = Some(word.clone()),
                _ => {
                    let names: Vec<&str> = KINDS.iter().map(|(_, name, _)| *name).collect();
                    let failure =
                        Failure::bad_input(format!("--from: `{word}` is neither a kind of config nor a file"));
                    return Err(failure.with_hint(format!("kinds are {}", names.join(", "))).into_clap());
                }
            }
        }
        if let Some(kind) = kind {
            return Err(Failure::bad_input(format!("--from {}: no file follows", kind.name())).into_clap());
        }
    }
    Ok((files, model))
}

fn is_file(word: &str) -> bool {
    Path::new(word).is_file() || ENDS.iter().any(|end| word.to_lowercase().ends_with(end))
}

/// Reads the files, and those that they name and that lie beside them.
///
/// # Errors
/// When a file cannot be read or understood.
pub fn read_configs(files: &[(Option<Kind>, String)]) -> Result<Option<Reading>, Failure> {
    if files.is_empty() {
        return Ok(None);
    }
    let mut texts: Vec<(Option<Kind>, String, String)> = Vec::new();
    for (kind, path) in files {
        texts.push((*kind, path.clone(), config_text(path)?));
    }
    loop {
        let given: Vec<_> = texts.iter().map(|(kind, name, text)| (*kind, ConfigText { name, text })).collect();
        let reading = read_files(&given)?;
        let folders: Vec<&Path> = files.iter().filter_map(|(_, path)| Path::new(path).parent()).collect();
        let found = reading.wanted().iter().find_map(|name| file_beside(&folders, name));
        match found.filter(|path| texts.len() < MOST_FILES && texts.iter().all(|(_, name, _)| name != path)) {
            Some(path) => {
                let text = config_text(&path)?;
                texts.push((None, path, text));
            }
            None => return Ok(Some(reading)),
        }
    }
}

fn config_text(path: &str) -> Result<String, Failure> {
    read_text(path, HAND_WRITTEN_BYTES).map_err(|error| Failure::about_file(path, &error))
}

/// Reads objects that another program hands over: the names of a type, and its attributes as JSON.
///
/// # Errors
/// When the attributes are no JSON.
pub fn read_handed(objects: &[(String, String)]) -> Result<Option<Reading>, Failure> {
    if objects.is_empty() {
        return Ok(None);
    }
    let attributes = |(class, text): &(String, String)| {
        serde_json::from_str(text).map_err(|error| Failure::bad_input(format!("{class}: {error}")))
    };
    let parsed: Vec<Map<String, Value>> = objects.iter().map(attributes).collect::<Result<_, _>>()?;
    let objects = objects.iter().zip(&parsed).map(|((class, _), attributes)| Object { class, attributes });
    Ok(Some(read_objects(&objects.collect::<Vec<_>>())?))
}

/// The file called `name` in the working folder, or in one that a config lies in or below.
fn file_beside(folders: &[&Path], name: &str) -> Option<String> {
    let mut places: Vec<PathBuf> = vec![PathBuf::from(name)];
    places.extend(folders.iter().flat_map(|folder| folder.ancestors().take(4).map(|above| above.join(name))));
    let base = Path::new(name).file_name()?;
    places.extend(folders.iter().map(|folder| folder.join(base)));
    places.into_iter().find(|path| path.is_file()).map(|path| path.to_string_lossy().into_owned())
}

/// A config without a model.
pub fn no_model() -> Failure {
    Failure::bad_input("the configs name no model").with_hint(
        "name it before them: `tonnage estimate Qwen/Qwen2.5-0.5B --from ...`, in Python `estimate(model, args)`",
    )
}

/// A config beside a job file.
pub fn beside_a_job_file() -> Failure {
    Failure::bad_input("a job file is given beside a trainer's config (--from, or an object of Python)")
        .with_hint("give one of them; flags change either")
}
