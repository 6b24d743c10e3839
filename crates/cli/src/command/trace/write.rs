//! `tonnage trace write`: the predicted trace of a job.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use tonnage_core::recording::write_timeline;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::job_args::JobArgs;
use crate::job_input::{read_source, simulate_resolved};
use crate::terminal::Terminal;

/// Writes the predicted trace of a job as a timeline: one JSON array a line
#[derive(Args)]
#[command(after_help = "Examples:\n  tonnage trace write gpt2 -b 4 --output step.jsonl\n  \
    tonnage trace write job.toml | grep optimizer")]
pub struct WriteArgs {
    #[command(flatten)]
    job: JobArgs,

    /// Where to; without it, to stdout
    #[arg(short, long, value_name = "FILE", help_heading = "Answer")]
    output: Option<PathBuf>,
}

impl WriteArgs {
    /// Writes it.
    ///
    /// # Errors
    /// When the job cannot be simulated or the file cannot be written.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let resolved = read_source(&self.job)?.resolve(&[])?;
        let timeline = write_timeline(simulate_resolved(&resolved)?.trace());
        match self.output {
            Some(path) => {
                fs::write(&path, timeline).map_err(|error| Failure::about_file(&path.display().to_string(), &error))?;
            }
            None => terminal.print(&timeline)?,
        }
        Ok(Exit::Done)
    }
}
