//! `tonnage suite status`, `stop` and `retry`: suites that were run here, by name.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::PossibleValuesParser;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tonnage_core::record::Outcome;
use tonnage_run::clock::now_ms;
use tonnage_run::store::{RunFolder, Store};
use tonnage_suite::folder::{SuiteFolder, host_name};
use tonnage_suite::journal::{Event, State, Where};
use tonnage_suite::plan::Plan;
use tonnage_suite::slurm::Client;
use tonnage_suite::status::Status;

use super::super::json;
use super::run::{Here, carry_out};
use super::source::Source;
use super::submit::{There, looked_after, send_suite};
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Tells where a suite is: what is done, what runs where, what is next
#[derive(Args)]
#[command(after_help = format!("Examples:\n  tonnage suite status\n  tonnage suite status policies --json\n\n{}", exit::ANSWER))]
pub struct StatusArgs {
    /// The suite's name [default: the one that something happened to last]
    #[arg(value_name = "SUITE")]
    name: Option<String>,

    /// Prints JSON (see docs/suite.md)
    #[arg(long)]
    json: bool,
}

impl StatusArgs {
    /// Tells.
    ///
    /// # Errors
    /// When there is no such suite.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        tell_status(self.name.as_deref(), self.json, terminal)
    }
}

/// Tells where the suite of this name is.
///
/// # Errors
/// When there is no such suite.
pub fn tell_status(name: Option<&str>, as_json: bool, terminal: &Terminal) -> Result<Exit, Failure> {
    let folder = find_suite(name)?;
    let (plan, is_run) = (folder.read_plan()?, folder.is_run());
    let view = looked_after(&folder, Store::of_user().root(), &plan)?;
    let state = folder.journal.read_state()?;
    let orphaned = if is_run { 0 } else { orphaned_runs(&plan, &state) };
    let status = Status::new(&plan, &state, is_run, now_ms()).orphaned(orphaned);
    let status = match &view {
        Some(view) => status.elsewhere(view),
        None => status,
    };
    match as_json {
        true => terminal.print(&json(&status.json())?)?,
        false => terminal.print(&status.text(&terminal.look))?,
    }
    Ok(Exit::Done)
}

/// Started runs that have neither ended nor a supervisor that lives; of another machine's nothing is known here.
fn orphaned_runs(plan: &Plan, state: &State) -> usize {
    let (store, own) = (Store::of_user(), host_name());
    let lives = |run: &str| RunFolder::open(store.root().join("runs").join(run)).is_ok_and(|run| run.is_supervised());
    let is_orphaned = |id: &str| match state.where_is(id) {
        Where::Started(known) => (known.host.is_empty() || known.host == own) && !lives(&known.run),
        _ => false,
    };
    plan.runs.iter().filter(|run| is_orphaned(&run.id)).count()
}

/// Asks a suite's runs to end, and starts no more of it
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tonnage suite stop\n  tonnage suite stop policies --now\n\nWhere nothing runs, it says so, and the exit code is 1."
)]
pub struct StopArgs {
    /// The suite's name [default: the one that something happened to last]
    #[arg(value_name = "SUITE")]
    name: Option<String>,

    /// Does not wait for runs to save anything
    #[arg(long)]
    now: bool,
}

impl StopArgs {
    /// Asks.
    ///
    /// # Errors
    /// When there is no such suite, or it does not end.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let folder = find_suite(self.name.as_deref())?;
        let plan = folder.read_plan()?;
        // What has ended meanwhile is not cancelled.
        looked_after(&folder, Store::of_user().root(), &plan)?;
        let state = folder.journal.read_state()?;
        let is_sent = cancel_suite(&folder, &state, &plan.suite, terminal)?;
        let times = 1 + usize::from(self.now);
        if let Some(runner) = state.runner.filter(|_| folder.is_run()) {
            (0..times).for_each(|_| ask_runner(runner));
            return wait_ended(|| !folder.is_run(), terminal, &plan.suite);
        }
        // The runner died, and its runs went on.
        let store = Store::of_user();
        let open = |id: &str| match state.where_is(id) {
            Where::Started(known) => RunFolder::open(store.root().join("runs").join(&known.run)).ok(),
            _ => None,
        };
        let living: Vec<RunFolder> =
            plan.runs.iter().filter_map(|run| open(&run.id)).filter(RunFolder::is_supervised).collect();
        if living.is_empty() && is_sent {
            return Ok(Exit::Done);
        }
        if living.is_empty() {
            terminal.say(&format!("nothing was stopped: suite {} does not run", plan.suite));
            return Ok(Exit::No);
        }
        let supervisors = living.iter().filter_map(|run| run.state().supervisor);
        supervisors.for_each(|supervisor| (0..times).for_each(|_| ask_runner(supervisor)));
        wait_ended(|| !living.iter().any(RunFolder::is_supervised), terminal, &plan.suite)
    }
}

/// Asks SLURM to cancel what was sent of a suite and has not ended; whether something was.
fn cancel_suite(folder: &SuiteFolder, state: &State, name: &str, terminal: &Terminal) -> Result<bool, Failure> {
    if state.batches.is_empty() {
        return Ok(false);
    }
    let Some(_held) = folder.lock_folder()? else { return Ok(false) };
    let cancelled = tonnage_suite::slurm::cancel::cancel_jobs(&Client::default(), state, name);
    cancelled.refused.iter().for_each(|why| terminal.say(&format!("not cancelled: {why}")));
    if let Some(why) = cancelled.silence {
        let hint = "nothing is known of what was sent: ask again once SLURM answers";
        let failure = Failure::bad_input(format!("SLURM does not answer: {why}")).with_hint(hint);
        return Err(Failure { exit: Exit::No, ..failure });
    }
    if cancelled.asked > 0 {
        let jobs = if cancelled.asked == 1 { "a job" } else { "jobs" };
        terminal.say(&format!(
            "SLURM was asked to cancel {jobs} of suite {name}; `tonnage suite status {name}` says when they have ended"
        ));
    }
    Ok(cancelled.asked > 0)
}

fn ask_runner(pid: u32) {
    // Whoever has just gone is what is wanted.
    let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM);
    std::thread::sleep(Duration::from_millis(50));
}

fn wait_ended(has_ended: impl Fn() -> bool, terminal: &Terminal, name: &str) -> Result<Exit, Failure> {
    let until = Instant::now() + Duration::from_secs(60);
    while !has_ended() {
        if Instant::now() > until {
            let problem = format!("suite {name} has not ended yet");
            return Err(Failure {
                problem,
                hint: Some("`tonnage suite stop --now` does not wait".to_owned()),
                exit: Exit::No,
                of_job: None,
            });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    terminal.say(&format!("suite {name} has ended"));
    Ok(Exit::Done)
}

/// Runs again what failed of a suite, by the class of failure
#[derive(Args)]
#[command(after_help = format!("Examples:\n  tonnage suite retry policies\n  tonnage suite retry policies --class gpu_memory,program_error --slots 1\n\n{}", exit::SUITE_RUN))]
pub struct RetryArgs {
    /// The suite's name [default: the one that something happened to last]
    #[arg(value_name = "SUITE")]
    name: Option<String>,

    /// Only failures of these classes (`suite status` names them) [default: all]
    #[arg(long, value_name = "CLASS", value_delimiter = ',')]
    class: Vec<String>,

    /// Where they are run again [default: where they ran]
    #[arg(long, value_name = "ENGINE", value_parser = PossibleValuesParser::new(["local", "slurm"]))]
    engine: Option<String>,

    #[command(flatten)]
    here: Here,

    #[command(flatten)]
    there: There,
}

impl RetryArgs {
    /// Runs them again.
    ///
    /// # Errors
    /// When there is no such suite, nothing of it failed so, or its file is another now.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let folder = find_suite(self.name.as_deref())?;
        let kept = folder.read_plan()?;
        looked_after(&folder, Store::of_user().root(), &kept)?;
        let state = folder.journal.read_state()?;
        let is_wanted = |id: &str| match state.where_is(id) {
            Where::Ended(end) if end.outcome != Outcome::Succeeded => {
                let class = end.class.as_deref().unwrap_or(tonnage_suite::runner::word(end.outcome));
                self.class.is_empty() || self.class.iter().any(|wanted| wanted == class)
            }
            _ => false,
        };
        let ids: Vec<String> = kept.runs.iter().filter(|run| is_wanted(&run.id)).map(|run| run.id.clone()).collect();
        if ids.is_empty() {
            terminal.say(&format!("nothing of suite {} failed so: nothing was started", kept.suite));
            return Ok(Exit::No);
        }
        let suite = Source::of_file(Path::new(&kept.file), &kept.typed, &kept.groups).read_suite()?;
        let plan = suite.make_plan(terminal)?;
        let missing = ids.iter().filter(|id| plan.runs.iter().all(|run| run.id != **id)).count();
        if missing > 0 {
            let problem = format!(
                "{missing} of the failed runs are no longer in {}: the file or the code is another now",
                kept.file
            );
            return Err(
                Failure::bad_input(problem).with_hint(format!("tonnage suite run {} runs what it says now", kept.file))
            );
        }
        terminal.say(&format!("{} runs of suite {} are run again", ids.len(), kept.suite));
        let was_sent = |id: &String| state.runs.get(id).is_some_and(|run| run.batch.is_some());
        if self.engine.as_deref().map_or_else(|| ids.iter().all(was_sent), |engine| engine == "slurm") {
            return send_suite(&suite, &plan, &self.there, &ids, false, terminal);
        }
        folder.journal.append_event(Event::Retried { ids })?;
        carry_out(&suite, &plan, &self.here, terminal)
    }
}

/// The suite of this name, or the one that something happened to last.
pub fn find_suite(name: Option<&str>) -> Result<SuiteFolder, Failure> {
    let mut all = SuiteFolder::all_suites(Store::of_user().root());
    let names = all
        .iter()
        .filter_map(|one| Some(one.path.file_name()?.to_string_lossy().into_owned()))
        .collect::<Vec<_>>()
        .join(", ");
    let found = match name {
        None => all.pop(),
        Some(name) => all.into_iter().find(|one| one.path.file_name().is_some_and(|own| own == name)),
    };
    found.ok_or_else(|| match (name, names.is_empty()) {
        (_, true) => Failure::bad_input("no suite was run here yet").with_hint("tonnage suite run FILE"),
        (Some(name), false) => Failure::bad_input(format!("there is no suite `{}`", name.escape_debug()))
            .with_hint(format!("there are {names}")),
        (None, false) => Failure::bad_input("no suite was run here yet"),
    })
}
