//! `tonnage suite export`: the metrics of a suite's runs for other programs, once or while it runs.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::PossibleValuesParser;
use tonnage_run::store::Store;
use tonnage_suite::export::{FORMATS, Measured, Sink, Target, measured_of};
use tonnage_suite::folder::SuiteFolder;

use super::living::Living;
use super::status::find_suite;
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage suite export policies --to tensorboard --out events
  tonnage suite export --to csv --out tables
  tonnage suite export policies --to wandb --out offline --python venv/bin/python
  tonnage suite export policies --to tensorboard --out events --follow    # until it has ended

W&B gets its metrics through its own package in a Python of yours, offline unless WANDB_MODE says another; a run's id is its identity, \
and what was given once is not given again.";

/// The least time between two looks of `--follow`; a look may take a tenth of the time.
const BETWEEN: Duration = Duration::from_secs(2);

/// Writes the metrics of a suite's runs for other programs: TensorBoard, CSV, Weights & Biases
#[derive(Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::ANSWER))]
pub struct ExportArgs {
    /// The suite's name [default: the one that something happened to last]
    #[arg(value_name = "SUITE")]
    name: Option<String>,

    /// The format
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(FORMATS.iter().map(|format| format.name)))]
    to: String,

    /// The folder
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,

    /// Goes on with what is new until the suite has ended
    #[arg(long)]
    follow: bool,

    /// The Python that has wandb
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    python: PathBuf,
}

impl ExportArgs {
    /// Writes.
    ///
    /// # Errors
    /// When there is no such suite, no metrics of it, or they cannot be written.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let folder = find_suite(self.name.as_deref())?;
        let store = Store::of_user();
        let shown = self.out.display().to_string();
        let failed = |error: std::io::Error| Failure::about_file(&shown, &error);
        let look = || measured_of(&folder, &store);
        let (runs, missed) = look()?;
        if !self.follow {
            missed.iter().for_each(|why| terminal.say(&format!("not exported: {why}")));
            if runs.is_empty() {
                return Err(Failure::bad_input(format!("{}: no metrics yet", folder.path.display()))
                    .with_hint("docs/suite.md says how a run measures"));
            }
        }
        let format = FORMATS.iter().find(|format| format.name == self.to);
        let format = format.ok_or_else(|| Failure::bad_input(format!("there is no format `{}`", self.to)))?;
        let target = Target { folder: self.out.clone(), python: self.python.clone() };
        let mut sink = (format.begin)(&target).map_err(failed)?;
        sink.take(&runs).map_err(failed)?;
        if self.follow {
            follow_suite(&folder, &store, sink.as_mut()).map_err(|error| match error {
                Stopped::Read(failure) => failure,
                Stopped::Written(error) => failed(error),
            })?;
        }
        terminal.note(&format!("{} in {shown}", sink.finish().map_err(failed)?));
        Ok(Exit::Done)
    }
}

/// Why nothing more is written.
enum Stopped {
    Read(Failure),
    Written(std::io::Error),
}

/// Gives what is new, until nothing of the suite lives.
fn follow_suite(folder: &SuiteFolder, store: &Store, sink: &mut dyn Sink) -> Result<(), Stopped> {
    let (mut living, mut took) = (Living::beside(), Duration::ZERO);
    loop {
        std::thread::sleep(BETWEEN.max(took * 10));
        let began = Instant::now();
        // Asked before the last look: what ends meanwhile is in it.
        let lives = living.lives(folder, store);
        let (runs, _): (Vec<Measured>, _) = measured_of(folder, store).map_err(|error| Stopped::Read(error.into()))?;
        sink.take(&runs).map_err(Stopped::Written)?;
        if !lives {
            return Ok(());
        }
        took = began.elapsed();
    }
}
