//! `tonnage schema`: the JSON schema of a job file.

use clap::Args;
use tonnage_core::job::job_schema;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Prints the JSON schema of a job file, for editors
#[derive(Args)]
#[command(after_help = "Examples:\n  tonnage schema > job.schema.json")]
pub struct SchemaArgs {}

impl SchemaArgs {
    /// Prints it.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        terminal.print(&format!("{:#}\n", job_schema()))?;
        Ok(Exit::Done)
    }
}
