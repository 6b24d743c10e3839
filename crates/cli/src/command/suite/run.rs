//! `tonnage suite run`: what is missing of a suite, on this machine.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tonnage_core::record::{JobRecord, Policy, RunRecord};
use tonnage_run::RunError;
use tonnage_run::adapter::escape_value;
use tonnage_run::os;
use tonnage_run::request::{RunTable, cannot_start, run_record};
use tonnage_run::secrets::Secrets;
use tonnage_run::store::Store;
use tonnage_suite::folder::SuiteFolder;
use tonnage_suite::peaks::Peaks;
use tonnage_suite::plan::{Plan, PlannedRun, fill_command, fill_names};
use tonnage_suite::runner::{Options, Outcomes, Place, Runner};

use super::super::supervise::watch_library;
use super::exporters::{self, Export, Exporters};
use super::look::Looker;
use super::source::{Source, Suite};
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage suite run examples/suites/policies.toml --slots 2
  tonnage suite run examples/suites/policies.toml               # again: only what is missing
  tonnage suite run suite.toml --gpus 0,1 --fail-fast
  tonnage suite run suite.toml --export tensorboard=events --export wandb=offline

Every run lives under a supervisor of its own (`tonnage status`, `logs`, `stop`): whatever ends this program, they go on, and the \
same command takes them up again. Ctrl-C asks all runs to end; a second one does not wait.";

/// Seconds between two starts where runs share GPUs by their bytes: memory is taken some time after the start.
const STAGGER: f64 = 2.0;

/// Seconds between two looks at the GPUs, as W&B has them.
const SAMPLE: f64 = 15.0;

/// Runs what is missing of a suite here: packed by predicted bytes, kept alive, recorded
#[derive(Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::SUITE_RUN))]
pub struct RunArgs {
    #[command(flatten)]
    source: Source,

    #[command(flatten)]
    here: Here,
}

/// How a suite is run on this machine.
#[derive(Args, Clone, Debug)]
pub struct Here {
    /// GPUs, by index or UUID [default: those visible]
    #[arg(long, value_name = "GPUS", value_delimiter = ',')]
    gpus: Vec<String>,

    /// Runs at once, at most [default: as many as their bytes let; without a job, one a GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    slots: Option<u32>,

    /// Seconds between two starts [default: 2 where runs share GPUs by their bytes]
    #[arg(long, value_name = "SECONDS")]
    stagger: Option<f64>,

    /// Equal failures at the start after which nothing more is started; 0 never [default: 3]
    #[arg(long, value_name = "N")]
    pause_after: Option<u32>,

    /// Starts nothing more once a run has failed
    #[arg(long)]
    fail_fast: bool,

    /// Takes runs that another machine started, and that have not ended, for dead
    #[arg(long)]
    take_over: bool,

    /// Hands on what runs measure while they run: `tensorboard=events`, `csv=tables`, `wandb=offline`; several times
    #[arg(long, value_name = "FORMAT=FOLDER", value_parser = exporters::parse_export)]
    export: Vec<Export>,

    /// The Python that has wandb
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    export_python: PathBuf,
}

impl RunArgs {
    /// Runs it.
    ///
    /// # Errors
    /// When the suite cannot be read, another runner has it, or its folder cannot be written.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let suite = self.source.read_suite()?;
        let plan = suite.make_plan(terminal)?;
        carry_out(&suite, &plan, &self.here, terminal)
    }
}

/// Runs what is missing of `plan`.
///
/// # Errors
/// When another runner has the suite, or its folder cannot be written.
pub fn carry_out(suite: &Suite, plan: &Plan, here: &Here, terminal: &Terminal) -> Result<Exit, Failure> {
    os::check_supported()?;
    if suite.file.command.is_empty() {
        return Err(Failure::bad_input(format!("{}: there is no command", suite.path.display()))
            .with_hint("command = [\"python\", \"train.py\", \"--seed\", \"{seed}\"]"));
    }
    let store = Store::of_user();
    let folder = SuiteFolder::new(store.root(), &suite.name);
    let Some(held) = folder.lock_folder().map_err(unwritable_folder)? else {
        return Err(Failure::bad_input(format!("suite {} is run already", suite.name)).with_hint(format!(
            "`tonnage suite status {}` tells where it is, `tonnage suite stop {}` ends it",
            suite.name, suite.name
        )));
    };
    // What cannot be started is said before anything is.
    let here_now = std::env::current_dir().map_err(|error| Failure::about_file(".", &error))?;
    let record = |run: &PlannedRun, place: &Place<'_>| make_run(suite, plan, run, place);
    if let Some(first) = plan.runs.first() {
        let nowhere = Place { gpus: &[], peaks: &Peaks::default() };
        let (checked, _) = record(first, &nowhere).map_err(Failure::bad_input)?;
        in_folder(&suite.directory, || cannot_start(&checked.command))?
            .map_or(Ok(()), |problem| Err(Failure::bad_input(problem).with_hint("nothing was started")))?;
    }
    folder.keep_plan(plan)?;
    // The command was looked for where it runs; folders of exports are where they were typed.
    let exporters =
        in_folder(&here_now, || Exporters::start(&here.export, &here.export_python, &folder, &suite.name))??;
    plan.twin_names().iter().for_each(|twins| terminal.say(twins));
    terminal.say(&format!("suite {}: {} runs, {}", suite.name, plan.runs.len(), folder.path.display()));
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let say = |text: &str| terminal.say(text);
    let options = runner_options(suite, plan, here)?;
    let looker = Looker::new(options.sample_every);
    let look = || looker.look();
    let runner = Runner {
        plan,
        folder: &folder,
        store: &store,
        options,
        record: &record,
        text: Secrets::found_in(&suite.file.command, environment).hide_in_job(&suite.file.text),
        shares_data_order: suite.file.shares_data_order,
        look: &look,
        say: &say,
    };
    let outcomes = runner.run().map_err(|error| {
        let goes_on = format!("runs that were started go on; `tonnage suite run {}` takes them up", plan.file);
        let failure = Failure::from(error);
        let hint = failure.hint.clone().unwrap_or(goes_on);
        failure.with_hint(hint)
    })?;
    terminal.say(&outcome_summary(&suite.name, outcomes));
    // Exporters go on until nobody has the suite.
    drop(held);
    exporters.finish(terminal);
    Ok(if outcomes.failed + outcomes.missing == 0 { Exit::Done } else { Exit::No })
}

/// A suite's folder that cannot be made or written.
pub fn unwritable_folder(error: RunError) -> Failure {
    Failure::from(error)
        .with_hint("TONNAGE_HOME names the folder that runs and suites are kept in: it must be one that you may write")
}

fn outcome_summary(name: &str, outcomes: Outcomes) -> String {
    let Outcomes { succeeded, failed, missing } = outcomes;
    let next = match (failed, missing) {
        (0, 0) => format!("; tonnage report {name} says what they show"),
        (0, _) => "; run it again for what is missing".to_owned(),
        _ => format!("; tonnage suite status {name} says why, tonnage suite retry {name} runs them again"),
    };
    format!("suite {name}: {succeeded} done, {failed} failed, {missing} missing{next}")
}

/// What `work` says in another folder than this one; a suite's command is found from there.
fn in_folder<T>(folder: &std::path::Path, work: impl FnOnce() -> T) -> Result<T, Failure> {
    std::env::set_current_dir(folder).map_err(|error| Failure::about_file(&folder.display().to_string(), &error))?;
    Ok(work())
}

fn runner_options(suite: &Suite, plan: &Plan, here: &Here) -> Result<Options, Failure> {
    let run = &suite.file.run;
    let has_job = plan.configurations.iter().any(|one| one.predicted.is_some());
    let gpus = if here.gpus.is_empty() { visible_gpus(has_job) } else { here.gpus.clone() };
    let by_default = if has_job { usize::MAX } else { gpus.len().max(1) };
    let stagger = here.stagger.or(run.stagger_seconds).unwrap_or(if has_job { STAGGER } else { 0.0 });
    let stagger = parse_duration("--stagger", stagger)?;
    Ok(Options {
        slots: here.slots.map(|slots| slots as usize).or(run.slots).unwrap_or(by_default).max(1),
        stagger,
        pause_after: here.pause_after.map(|count| count as usize).or(run.pause_after).unwrap_or(3),
        fail_fast: here.fail_fast || run.fail_fast,
        take_over: here.take_over,
        sample_every: parse_duration("[run] sample_seconds", run.sample_seconds.unwrap_or(SAMPLE))?,
        program: std::env::current_exe().map_err(|error| Failure::about_file("tonnage", &error))?,
        gpus,
    })
}

fn parse_duration(what: &str, value: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(value).map_err(|_| Failure::bad_input(format!("{what} is a number of seconds from 0")))
}

/// The GPUs that may be used, by the names that CUDA_VISIBLE_DEVICES takes. Where nothing tells of one, a job gets the first.
fn visible_gpus(has_job: bool) -> Vec<String> {
    let named = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let named: Vec<String> =
        named.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if !named.is_empty() {
        return named;
    }
    let count = watch_library().and_then(|library| library.count().ok()).unwrap_or(0);
    match count {
        0 if has_job => vec!["0".to_owned()],
        count => (0..count).map(|gpu| gpu.to_string()).collect(),
    }
}

/// The record of a run, and its command's secrets.
fn make_run(suite: &Suite, plan: &Plan, run: &PlannedRun, place: &Place<'_>) -> Result<(RunRecord, Secrets), String> {
    let one = suite.configurations.get(run.configuration).ok_or("no such configuration")?;
    let source = suite.job.as_ref().map(|job| job.clone().with(&one.changes));
    let resolved = source.as_ref().map(|source| source.resolve(&[])).transpose().map_err(|error| error.to_string())?;
    let given = source.as_ref().zip(resolved.as_ref());
    let job = given.map(|(source, resolved)| (JobRecord::new(source, resolved), &resolved.job));
    let keys: Vec<String> = job.iter().flat_map(|(job, _)| job.values.iter().map(|value| value.key.clone())).collect();
    let values: Vec<(String, String)> =
        job.iter().flat_map(|(job, _)| &job.values).map(|value| (value.key.clone(), value.value.clone())).collect();
    let mut table = match source.as_ref().and_then(|source| source.file.as_ref()) {
        Some(file) => RunTable::read_table(&file.name, &file.text).map_err(|error| error.to_string())?,
        None => RunTable::default(),
    };
    if !place.gpus.is_empty() {
        table.gpus = place.gpus.to_vec();
    }
    // Nodes count on from the first one's seed: those of two swarms must not meet.
    let nodes = job.as_ref().map_or(1, |(_, spec)| spec.task.swarm().map_or(1, |swarm| swarm.nodes));
    table.seed = Some(run.seed.saturating_mul(nodes));
    let problem = std::cell::RefCell::new(None);
    let written = |value: &str| match escape_value(value, &keys) {
        Ok(escaped) => escaped,
        Err(error) => {
            *problem.borrow_mut() = Some(error.to_string());
            String::new()
        }
    };
    let command = fill_command(&suite.file.command, &one.parameters, [&plan.suite, &one.name], &written);
    if let Some(problem) = problem.into_inner() {
        return Err(format!("{}: {problem}", one.place()));
    }
    let policy = Policy {
        seen_more_bytes: place.peaks.more_bytes(),
        seen_less_bytes: place.peaks.less_bytes(),
        ..run_policy(suite, &table, job.is_some())
    };
    let directory = suite.directory.display().to_string();
    let (mut made, secrets) =
        run_record(command, directory, job, &table, policy).map_err(|error| format!("{}: {error}", one.place()))?;
    if let [node] = made.nodes.as_mut_slice() {
        node.seed = table.seed.unwrap_or(run.seed);
        // Where the command names a folder by its seed or a key of the job, that is where its checkpoints are.
        made.policy.checkpoints = made.policy.checkpoints.map(|place| fill_place(place, run.seed, &values));
    }
    Ok((made, secrets))
}

/// A folder's name with what is known of a run before it is started.
fn fill_place(place: String, seed: u64, values: &[(String, String)]) -> String {
    let of_key =
        |name: &str| values.iter().find(|(key, _)| key == name).map(|(_, value)| value.trim_matches('"').to_owned());
    let meaning = |name: &str| if name == "seed" { Some(seed.to_string()) } else { of_key(name) };
    fill_names(std::slice::from_ref(&place), &meaning).pop().unwrap_or(place)
}

fn run_policy(suite: &Suite, table: &RunTable, has_job: bool) -> Policy {
    let run = &suite.file.run;
    let policy = table.apply(Policy::default());
    Policy {
        max_attempts: run.max_attempts.unwrap_or(policy.max_attempts),
        stall_seconds: run.stall_seconds.or(policy.stall_seconds),
        grace_seconds: run.grace_seconds.unwrap_or(policy.grace_seconds),
        // What a run was measured to take counts for the later ones of its configuration.
        observes: policy.observes || has_job,
        ..policy
    }
}
