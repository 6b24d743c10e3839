//! `tonnage report`: what an experiment says, and what it does not.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use tonnage_experiment::axis::{AXES, Axis};
use tonnage_experiment::check::Severity;
use tonnage_experiment::document::{Block, Document};
use tonnage_experiment::experiment::{Experiment, Question, Unanswerable};
use tonnage_experiment::figure::{png, svg};
use tonnage_experiment::record::Total;
use tonnage_experiment::render::{csv, html, json, markdown, text};
use tonnage_experiment::section::{Made, make_document};
use tonnage_experiment::source::{Gathered, Limits, gather_runs};
use tonnage_report::words::shell_words;

use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage report examples/experiment                        # a folder of anybody's logs
  tonnage report examples/experiment --html report.html     # one page, with figures
  tonnage report examples/experiment --markdown --figures figures
  tonnage report examples/experiment --metric reward/on_policy --by generated-tokens
  tonnage report sapo-gpt2 --baseline 8/0 --paired          # a suite by name

It reads CSV, JSON lines, TensorBoard's event files, trainer_state.json, rl-swarm's metrics.jsonl, W&B's exported history and the
records of `tonnage run`; docs/report.md says how configurations and seeds are told apart, and what every check looks for.";

/// Says what an experiment shows and what it does not: checks, statistics over seeds, figures
#[derive(Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::REPORT))]
pub struct ReportArgs {
    /// A file or a folder of records, or the name of a suite or a run
    #[arg(value_name = "PATH|SUITE")]
    of: PathBuf,

    /// The metric; with `*` several, which count as tasks. Without, the likeliest that is there
    #[arg(long, value_name = "NAME", help_heading = "Question")]
    metric: Option<String>,

    /// The axis that comes first: steps, generated-tokens, training-tokens, gpu-hours
    #[arg(long, value_name = "AXIS", value_parser = parse_axis, help_heading = "Question")]
    by: Option<Axis>,

    /// What the other configurations are compared with
    #[arg(long, value_name = "CONFIGURATION", help_heading = "Question")]
    baseline: Option<String>,

    /// Less of the metric is better (known of losses, errors and perplexity)
    #[arg(long, help_heading = "Question")]
    lower_is_better: bool,

    /// More of the metric is better
    #[arg(long, conflicts_with = "lower_is_better", help_heading = "Question")]
    higher_is_better: bool,

    /// Runs of one seed see the same data in the same order: compare them as pairs
    #[arg(long, help_heading = "Question")]
    paired: bool,

    /// Runs are independent, whatever their records say
    #[arg(long, conflicts_with = "paired", help_heading = "Question")]
    unpaired: bool,

    /// What a logged reward is over a round's completions: sum or mean
    #[arg(long, value_name = "HOW", value_parser = parse_total, help_heading = "Question")]
    reward: Option<Total>,

    /// The most that one completion can earn
    #[arg(long, value_name = "N", help_heading = "Question")]
    max_reward: Option<f64>,

    /// A value whose reaching is a milestone; without, nine tenths of the baseline's way
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "Question")]
    milestone: Option<f64>,

    /// Writes one self-contained page
    #[arg(long, value_name = "FILE", help_heading = "Answer")]
    html: Option<PathBuf>,

    /// Writes every figure as SVG and PNG
    #[arg(long, value_name = "FOLDER", help_heading = "Answer")]
    figures: Option<PathBuf>,

    /// Prints Markdown
    #[arg(long, conflicts_with_all = ["csv", "json"], help_heading = "Answer")]
    markdown: bool,

    /// Prints a line for every run
    #[arg(long, conflicts_with = "json", help_heading = "Answer")]
    csv: bool,

    /// Prints JSON (see docs/report.md)
    #[arg(long, help_heading = "Answer")]
    json: bool,

    /// Ends with 1 where a check forbids a conclusion
    #[arg(long, help_heading = "Answer")]
    fail_on_check: bool,
}

fn parse_axis(name: &str) -> Result<Axis, String> {
    let names: Vec<&str> = AXES.iter().map(|row| row.1).collect();
    Axis::of_name(name).ok_or_else(|| format!("there are {}", names.join(", ")))
}

fn parse_total(name: &str) -> Result<Total, String> {
    match name {
        "sum" => Ok(Total::Sum),
        "mean" => Ok(Total::Mean),
        _ => Err("it is `sum` or `mean`".to_owned()),
    }
}

impl ReportArgs {
    /// Reads, judges and writes.
    ///
    /// # Errors
    /// When nothing can be read, what is asked about is not there, or a file cannot be written.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let path = self.output_path()?;
        let shown = path.display().to_string();
        let mut gathered =
            gather_runs(&path, &Limits::default()).map_err(|error| Failure::about_file(&shown, &error))?;
        if gathered.runs.is_empty() {
            return Err(nothing_found(&shown, &gathered));
        }
        let runs = std::mem::take(&mut gathered.runs);
        let all = Experiment::new(runs, &self.asked_question()).map_err(unanswerable_failure)?;
        if let Some(by) = self.by.filter(|by| all.axes.first() != Some(by)) {
            let failure = Failure::bad_input(format!("not every run says its {}", by.words()));
            let known: Vec<&str> = all.axes.iter().map(|axis| axis.name()).collect();
            return Err(failure.with_hint(format!("all say {}", known.join(", "))));
        }
        let (document, flags) = make_document(&all, &gathered, &self.made_by());
        if let Some(folder) = &self.figures {
            write_figures(&document, folder)?;
        }
        if let Some(file) = &self.html {
            write_bytes(file, html(&document).as_bytes())?;
            terminal.note(&format!("the page is {}", file.display()));
        }
        self.print_document(&document, &gathered, terminal)?;
        let forbids = flags.iter().any(|flag| flag.severity == Severity::Refutes);
        Ok(if self.fail_on_check && forbids { Exit::No } else { Exit::Done })
    }

    /// What is named: a path, or a suite or a run of the user's.
    fn output_path(&self) -> Result<PathBuf, Failure> {
        if self.of.exists() {
            return Ok(self.of.clone());
        }
        let name = self.of.display().to_string();
        let is_name = !name.is_empty() && !name.contains(['/', '\\']) && name != "..";
        let found = if is_name { suite_or_run(&name) } else { None };
        found.ok_or_else(|| {
            let failure = Failure::bad_input(format!(
                "{name}: there is no such file or folder, and no suite or run of that name"
            ));
            failure.with_hint("name a folder of logs, or see `tonnage list`")
        })
    }

    fn asked_question(&self) -> Question {
        let told = |yes: bool, no: bool| (yes || no).then_some(yes);
        Question {
            metric: self.metric.clone(),
            by: self.by,
            baseline: self.baseline.clone(),
            lower_is_better: told(self.lower_is_better, self.higher_is_better),
            paired: told(self.paired, self.unpaired),
            reward: self.reward,
            max_reward: self.max_reward,
            milestone: self.milestone,
        }
    }

    fn made_by(&self) -> Made {
        let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
        let command: Vec<String> = std::iter::once("tonnage".to_owned()).chain(words).collect();
        Made {
            of: self.of.display().to_string(),
            command: shell_words(&command),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn print_document(&self, document: &Document, gathered: &Gathered, terminal: &Terminal) -> Result<(), Failure> {
        if self.json {
            return terminal.print(&json(document));
        }
        if self.csv {
            return terminal.print(&csv(document));
        }
        if self.markdown {
            let folder = self.figures.as_ref().map(|folder| folder.display().to_string());
            return terminal.print(&markdown(document, folder.as_deref()));
        }
        if !gathered.not_read.is_empty() {
            terminal.say(&format!(
                "{} files or parts of files could not be read; the report names them",
                gathered.not_read.len()
            ));
        }
        terminal.print(&text(document, &terminal.look))
    }
}

/// The folder of the user's suite or run of this name.
#[cfg(unix)]
fn suite_or_run(name: &str) -> Option<PathBuf> {
    let store = tonnage_run::store::Store::of_user();
    let suite = store.root().join("suites").join(name);
    let run = || store.find(name).ok().map(|run| store.root().join("runs").join(run.id()));
    if suite.is_dir() { Some(suite) } else { run() }
}

/// Where no runs are kept there are none.
#[cfg(not(unix))]
fn suite_or_run(_name: &str) -> Option<PathBuf> {
    None
}

/// Why a folder has no runs.
fn nothing_found(shown: &str, gathered: &Gathered) -> Failure {
    let first = gathered.not_read.first();
    let why = first.map_or_else(String::new, |one| {
        let more = gathered.not_read.len() - 1;
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        format!("; {}: {}{more}", one.file, one.why)
    });
    Failure::bad_input(format!("{shown}: no metrics in it{why}"))
        .with_hint(format!("what is read: {}", Gathered::forms()))
}

fn unanswerable_failure(why: Unanswerable) -> Failure {
    let hint = match &why {
        Unanswerable::NoMetric => "the records hold no number by step; docs/report.md says what is read",
        Unanswerable::NoSuchMetric(..) => "--metric takes one of them, or several by `*`",
        Unanswerable::NoSuchBaseline(..) => "--baseline takes one of them",
    };
    Failure::bad_input(why.to_string()).with_hint(hint)
}

fn write_figures(document: &Document, folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| Failure::about_file(&folder.display().to_string(), &error))?;
    for block in &document.blocks {
        if let Block::Figure(figure) = block {
            write_bytes(&folder.join(format!("{}.svg", figure.name)), svg(figure).as_bytes())?;
            write_bytes(&folder.join(format!("{}.png", figure.name)), &png(figure))?;
        }
    }
    Ok(())
}

fn write_bytes(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(file, bytes).map_err(|error| Failure::about_file(&file.display().to_string(), &error))
}
