//! `tonnage suite export`: the metrics of a suite's runs for other programs.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use tonnage_suite::export::{FORMATS, runs};

use super::status::find;
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Writes the metrics of a suite's runs for other programs: TensorBoard, CSV
#[derive(Args)]
#[command(after_help = format!("Examples:\n  tonnage suite export policies --to tensorboard --out events\n  tonnage suite export --to csv --out tables\n\n{}", exit::ANSWER))]
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
}

impl ExportArgs {
    /// Writes.
    ///
    /// # Errors
    /// When there is no such suite, no metrics of it, or a file cannot be written.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let folder = find(self.name.as_deref())?;
        let shown = folder.path.display().to_string();
        let (runs, missed) = runs(&folder.path).map_err(|error| Failure::file(&shown, &error))?;
        missed.iter().for_each(|why| terminal.say(&format!("not exported: {why}")));
        if runs.is_empty() {
            return Err(
                Failure::input(format!("{shown}: no metrics yet")).hint("docs/suite.md says how a run measures")
            );
        }
        let format = FORMATS.iter().find(|format| format.name == self.to);
        let format = format.ok_or_else(|| Failure::input(format!("there is no format `{}`", self.to)))?;
        let written =
            (format.write)(&runs, &self.out).map_err(|error| Failure::file(&self.out.display().to_string(), &error))?;
        terminal.note(&format!("{} runs, {} files in {}", runs.len(), written.len(), self.out.display()));
        Ok(Exit::Done)
    }
}
