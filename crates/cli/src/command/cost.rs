//! `tonnage cost`: time, energy and price of a job, or of a whole suite of its configurations.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use tonnage_core::job::{JobError, Override};
use tonnage_core::limit::HAND_WRITTEN_BYTES;
use tonnage_core::plan::suite::{Configuration, CostReference, Suite};
use tonnage_report::{CostView, SuiteAnswer, suite_csv, text};
use tonnage_run::bounded::read_text;
use tonnage_suite::expand::{Typed, expand_file, priced_suite};
use tonnage_suite::file::SuiteFile;

use super::{axes, json};
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::job_args::{self, JobArgs};
use crate::job_input::{gather_each, on_a_gpu, read_source};
use crate::same_job;
use crate::sweep::sweep_items;
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage cost examples/hrm-arc.toml --set model.H_cycles=2,4 --max-steps 9000
  tonnage cost --suite examples/suites/hrm-arc.toml
  tonnage cost --suite examples/suites/hrm-arc.toml --price 2 --csv suite.csv
  tonnage cost llama-3.2-1b --train-tokens 1_000_000_000 --gpu h100,a100-80";

/// Tells what a job costs in hours, energy and dollars, or a whole suite of its configurations
#[derive(Args)]
#[command(after_help = job_args::SHORT, after_long_help = format!("{EXAMPLES}\n\nA list (`--seq-len 256,512`) makes a configuration of each value.\n\n{}", exit::COST))]
pub struct CostArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,

    /// A file of configurations: `job`, what all share in `[set]`, and tables `[[configuration]]`
    #[arg(long, value_name = "FILE", help_heading = "Suite")]
    suite: Option<PathBuf>,

    /// Writes a line for every configuration
    #[arg(long, value_name = "FILE", help_heading = "Answer")]
    csv: Option<PathBuf>,

    /// Prints JSON (see docs/json.md)
    #[arg(long, help_heading = "Answer")]
    json: bool,
}

impl CostArgs {
    /// Answers.
    ///
    /// # Errors
    /// When the suite or the job cannot be read or simulated, or a file cannot be written.
    pub fn run(mut self, terminal: &Terminal) -> Result<Exit, Failure> {
        let lists = axes::take_axes(&mut self.job.overrides)?;
        let suite = self.read_suite(&lists)?;
        let source = on_a_gpu(read_source(&self.job)?, "time and price are those of a GPU");
        let changes = suite.configurations.iter().flat_map(|configuration| &configuration.changes).chain(&suite.set);
        // The command line wins over what the suite shares.
        let source = gather_each(source, changes)?.pin();
        let first = [suite.set.as_slice(), suite.configurations[0].changes.as_slice()].concat();
        if let Some(path) = &self.suite {
            suite.check(&source).map_err(|error| placed_error(path, error))?;
        }
        let base = source.resolve(&first)?.job;
        let reference = CostReference::new(&base)?;
        let price = |configuration: &Configuration| reference.price_of(configuration, &suite.set, &source);
        let rows = sweep_items(&suite.configurations, terminal, price);
        let answer = SuiteAnswer { job: base, rows };
        if let Some(path) = &self.csv {
            fs::write(path, suite_csv(&answer))
                .map_err(|error| Failure::about_file(&path.display().to_string(), &error))?;
        }
        terminal.show(self.json, || json(&CostView::new(&answer)), || text::suite_screen(&answer, &terminal.look))?;
        let fits =
            |row: &tonnage_core::plan::suite::Priced| row.appraisal.as_ref().is_ok_and(|one| one.verdict.may_fit());
        let Some(failed) = answer.rows.iter().find(|row| !fits(row)) else { return Ok(Exit::Done) };
        let changes = [suite.set.as_slice(), failed.configuration.changes.as_slice()].concat();
        if let Some(plan) = same_job::plan_command(&self.job, &changes, None).filter(|_| !self.json) {
            terminal.print(&text::way_out(&plan, &terminal.look))?;
        }
        Ok(Exit::No)
    }

    /// The configurations: of the file, times those of the lists. A job that the file names is the command line's model.
    fn read_suite(&mut self, lists: &[Vec<Override>]) -> Result<Suite, Failure> {
        let of_lists = Suite::of_axes(lists)?;
        let Some(path) = &self.suite else { return Ok(of_lists) };
        let shown = path.display().to_string();
        let text = read_text(path, HAND_WRITTEN_BYTES).map_err(|error| Failure::about_file(&shown, &error))?;
        let file = SuiteFile::read(&text).map_err(|error| placed_error(path, error))?;
        let all = expand_file(&file, &Typed::default()).map_err(|error| placed_error(path, error))?;
        let mut suite = priced_suite(&file, &all);
        if self.job.model.is_none() {
            self.job.model = suite.job.as_deref().map(|job| path_beside(path, job));
        }
        if !lists.is_empty() {
            suite.configurations = combine_configurations(&suite.configurations, &of_lists.configurations);
        }
        Ok(suite)
    }
}

/// The error with the suite's file.
pub(super) fn placed_error(suite: &Path, error: JobError) -> Failure {
    Failure::bad_input(format!("{}: {}", suite.display(), error.problem)).with_hint(error.hint.unwrap_or_default())
}

/// Every configuration of the file with every one of the lists.
fn combine_configurations(of_file: &[Configuration], of_lists: &[Configuration]) -> Vec<Configuration> {
    let both = |a: &Configuration, b: &Configuration| Configuration {
        name: format!("{} {}", a.name, b.name),
        changes: [a.changes.as_slice(), b.changes.as_slice()].concat(),
        count: a.count,
        line: a.line,
    };
    of_file.iter().flat_map(|a| of_lists.iter().map(|b| both(a, b)).collect::<Vec<_>>()).collect()
}

/// The job file that a suite names by a path from its own folder; a model's name stays what it is.
pub(super) fn path_beside(suite: &Path, job: &str) -> String {
    let path = suite.parent().unwrap_or(Path::new("")).join(job);
    if path.exists() { path.to_string_lossy().into_owned() } else { job.to_owned() }
}
