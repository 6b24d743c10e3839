//! `tonnage status`: where a run is, and the suites that live.

use clap::Args;
use serde_json::{Value, json};
use tonnage_core::record::SuiteSummary;
use tonnage_report::text::wrap_text;
use tonnage_report::{run_json, text};
use tonnage_run::RunError;
use tonnage_run::clock::now_ms;
use tonnage_run::store::{RunFolder, Store};
use tonnage_suite::folder::SuiteFolder;
use tonnage_suite::status::Status;
use tonnage_watch::{suite_headline, suite_json, suite_run_lines};

use super::json as document;
use super::list::run_line;
use super::suite::living::Living;
use super::suite::status as suite_status;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage status
  tonnage status 20261121-120000 --json
  tonnage status policies               # of a suite, as `tonnage suite status policies`

Without a name the suites that live are told of as well: which run is where, what is next.";

/// Lines of a suite beside a run.
const SUITE_LINES: usize = 8;

/// Tells where a run is, and the suites that live
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct StatusArgs {
    /// The run: its id, a part of it that no other has, `last`, the newest that lives; or a suite
    #[arg(default_value = "last")]
    run: String,

    /// Prints JSON
    #[arg(long)]
    json: bool,
}

impl StatusArgs {
    /// Tells.
    ///
    /// # Errors
    /// When there is no such run.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let store = Store::of_user();
        let suites: Vec<_> = match self.run.as_str() {
            "last" => Living::default().look(&store),
            _ => Vec::new(),
        };
        let folder = match store.find_living(&self.run) {
            Err(RunError::NoSuchRun(_)) if is_suite(&store, &self.run) => {
                return suite_status::tell_status(Some(&self.run), self.json, terminal);
            }
            // All that lives was sent to SLURM.
            Err(_) if !suites.is_empty() => return tell_suites(&suites, self.json, terminal),
            found => found?,
        };
        let of_suite = suite_of(&store, folder.id());
        if self.json {
            let mut answer = run_document(&folder);
            if let Value::Object(answer) = &mut answer {
                let named = of_suite.map(|(suite, name)| json!({"suite": suite, "name": name}));
                answer.insert("suite".to_owned(), json!(named));
                answer.insert("suites".to_owned(), suites.iter().map(suite_json).collect());
            }
            terminal.print(&document(&answer)?)?;
            return Ok(Exit::Done);
        }
        show_run(&folder, false, false, terminal)?;
        let of_suite = of_suite.map(|(suite, name)| format!("of suite {suite}: {name}"));
        let said: Vec<String> = of_suite.into_iter().chain(suites.iter().flat_map(lines_of)).collect();
        print_lines(&said, terminal)
    }
}

fn print_lines(said: &[String], terminal: &Terminal) -> Result<Exit, Failure> {
    let lines: String = said.iter().map(|line| format!("{}\n", wrap_text(line, terminal.look.width, 2))).collect();
    terminal.print(&lines)?;
    Ok(Exit::Done)
}

fn lines_of(suite: &SuiteSummary) -> Vec<String> {
    let below = suite_run_lines(suite, SUITE_LINES).into_iter().map(|line| format!("- {line}"));
    std::iter::once(suite_headline(suite)).chain(below).collect()
}

/// Tells of suites where there is no run of this machine to tell of.
fn tell_suites(suites: &[SuiteSummary], as_json: bool, terminal: &Terminal) -> Result<Exit, Failure> {
    if as_json {
        let suites: Vec<Value> = suites.iter().map(suite_json).collect();
        terminal.print(&document(&json!({"suites": suites}))?)?;
        return Ok(Exit::Done);
    }
    print_lines(&suites.iter().flat_map(lines_of).collect::<Vec<_>>(), terminal)
}

fn is_suite(store: &Store, name: &str) -> bool {
    SuiteFolder::all_suites(store.root()).iter().any(|one| one.path.file_name().is_some_and(|own| own == name))
}

/// The suite that a run is of, and its name there; the newest suite first.
fn suite_of(store: &Store, run: &str) -> Option<(String, String)> {
    SuiteFolder::all_suites(store.root()).into_iter().rev().find_map(|folder| {
        let (plan, state) = (folder.read_plan().ok()?, folder.journal.read_state().ok()?);
        let name = Status::new(&plan, &state, false, now_ms()).name_of(run)?;
        Some((plan.suite.clone(), name))
    })
}

fn run_document(folder: &RunFolder) -> Value {
    run_json(folder.run(), &folder.state_now(), &run_line(folder))
}

/// Prints a run; `full` with all that its attempts were given.
///
/// # Errors
/// When stdout cannot be written.
pub fn show_run(folder: &RunFolder, full: bool, as_json: bool, terminal: &Terminal) -> Result<Exit, Failure> {
    if as_json {
        terminal.print(&document(&run_document(folder))?)?;
    } else {
        let (run, state, line) = (folder.run(), folder.state_now(), run_line(folder));
        terminal.print(&text::run_screen(run, &state, &line, full, &terminal.look))?;
    }
    Ok(Exit::Done)
}
