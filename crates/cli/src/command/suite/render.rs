//! `tonnage suite render`: the files that run a suite elsewhere, to look at.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;
use tonnage_core::job::keys;
use tonnage_suite::file::{Elsewhere, Limits, value_text};
use tonnage_suite::plan::{Plan, PlannedRun, fill_names};
use tonnage_suite::render::{ENGINES, Engine, Rendered, Rendering};

use super::plan::machine_for;
use super::source::{Source, Suite};
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage suite render examples/suites/hrm-arc.toml --engine slurm
  tonnage suite render suite.toml --engine kubernetes --out files

Nothing is started. Values reach the scripts' shell only quoted; [slurm] in the suite's file says accounts, partitions, containers.";

/// Seconds that a checkpoint may take where nobody says.
const GRACE_SECONDS: u64 = 120;

/// Writes the files that run a suite elsewhere: SLURM, Compose, Kubernetes, SkyPilot
#[derive(Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::ANSWER))]
pub struct RenderArgs {
    #[command(flatten)]
    source: Source,

    /// For whom
    #[arg(long, value_name = "ENGINE", value_parser = PossibleValuesParser::new(ENGINES.iter().map(|engine| engine.name)))]
    engine: String,

    /// Writes the files into this folder, instead of printing them
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    /// GPUs of the machine, for engines that place runs themselves [default: those of the widest run]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    gpus: Option<u32>,
}

impl RenderArgs {
    /// Writes them.
    ///
    /// # Errors
    /// When the suite cannot be read, or the engine cannot hold it.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let suite = self.source.read_suite()?;
        let plan = suite.make_plan(terminal)?;
        let engine = ENGINES.iter().find(|engine| engine.name == self.engine);
        let engine = engine.ok_or_else(|| Failure::bad_input(format!("there is no engine `{}`", self.engine)))?;
        let files = render_files(&suite, &plan, engine, self.gpus.map(|gpus| gpus as usize))?;
        for file in files {
            match &self.out {
                Some(folder) => write_rendered(folder, &file, terminal)?,
                None => terminal.print(&format!("# {}\n{}", file.name, file.text))?,
            }
        }
        Ok(Exit::Done)
    }
}

fn write_rendered(folder: &Path, file: &Rendered, terminal: &Terminal) -> Result<(), Failure> {
    let path = folder.join(&file.name);
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, &file.text));
    written.map_err(|error| Failure::about_file(&path.display().to_string(), &error))?;
    terminal.note(&path.display().to_string());
    Ok(())
}

/// The files of an engine.
///
/// # Errors
/// When it cannot hold the suite.
pub fn render_files(
    suite: &Suite,
    plan: &Plan,
    engine: &Engine,
    gpus: Option<usize>,
) -> Result<Vec<Rendered>, Failure> {
    let file = &suite.file;
    let limits = Limits { gpus: gpus.or(file.limits.gpus), ..file.limits.clone() };
    with_rendering(suite, plan, &file.elsewhere, &limits, None, &mut |rendering| {
        (engine.render)(rendering).map_err(|problem| Failure::bad_input(format!("{}: {problem}", suite.path.display())))
    })
}

/// What `work` makes of a suite with all names of its commands filled in.
///
/// # Errors
/// When there is no command, a name of it is one that only `tonnage run` knows, or `work` fails.
pub fn with_rendering<T>(
    suite: &Suite,
    plan: &Plan,
    elsewhere: &Elsewhere,
    limits: &Limits,
    place: Option<&Path>,
    work: &mut dyn FnMut(&Rendering<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if suite.file.command.is_empty() {
        return Err(Failure::bad_input(format!("{}: there is no command", suite.path.display())));
    }
    let commands = run_commands(suite, plan)?;
    work(&Rendering {
        plan,
        commands: &commands,
        elsewhere,
        limits,
        grace_seconds: suite.file.run.grace_seconds.unwrap_or(GRACE_SECONDS),
        machine: machine_for(plan, limits.gpus, suite.file.run.slots),
        place,
    })
}

/// The words of every run, with the keys of its job filled in: nothing is left to fill in elsewhere.
fn run_commands(suite: &Suite, plan: &Plan) -> Result<Vec<Vec<String>>, Failure> {
    let mut values: Vec<HashMap<String, String>> = Vec::new();
    for one in &suite.configurations {
        let resolved = suite.job.as_ref().map(|job| job.resolve(&one.changes)).transpose()?;
        let mut known = HashMap::new();
        for value in resolved.iter().flat_map(|resolved| &resolved.provenance) {
            let text = value.value.trim_matches('"').to_owned();
            known.entry(value.key.rsplit('.').next().unwrap_or_default().to_owned()).or_insert_with(|| text.clone());
            known.insert(value.key.clone(), text);
        }
        known.extend(one.parameters.iter().map(|(key, value)| (key.clone(), value_text(value))));
        known.insert("suite".to_owned(), plan.suite.clone());
        known.insert("configuration".to_owned(), one.name.clone());
        values.push(known);
    }
    plan.runs.iter().map(|run| run_words(suite, &values[run.configuration], run)).collect()
}

/// Names that only `tonnage run` can fill in.
const HERE: [&str; 7] =
    ["attempt", "attempt_dir", "overrides", "node", "node_name", "role", keys::RESUME_FROM_CHECKPOINT];

fn run_words(suite: &Suite, known: &HashMap<String, String>, run: &PlannedRun) -> Result<Vec<String>, Failure> {
    let unknown = std::cell::Cell::new(None);
    let meaning = |name: &str| match HERE.iter().find(|here| **here == name) {
        Some(here) => {
            unknown.set(Some(*here));
            None
        }
        None if name == "seed" => Some(run.seed.to_string()),
        None => known.get(name).cloned(),
    };
    let words = fill_names(&suite.file.command, &meaning);
    if let Some(name) = unknown.get() {
        return Err(Failure::bad_input(format!("`{{{name}}}` is filled in by `tonnage run` alone"))
            .with_hint("let the job's command be `tonnage run -- ...` there, or find what it names in the script"));
    }
    match words.iter().find(|word| word.contains('\0')) {
        Some(_) => Err(Failure::bad_input("a word of the command holds a zero byte")),
        None => Ok(words),
    }
}
