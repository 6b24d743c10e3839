//! `tonnage show`: everything that is recorded of a run.

use clap::Args;
use tonnage_run::store::Store;

use super::status::show_run;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Shows all attempts of a run: what each was given, why, what was predicted and what came of it
#[derive(Args)]
#[command(after_help = "Examples:\n  tonnage show\n  tonnage show last --json")]
pub struct ShowArgs {
    /// The run: its id, a part of it that no other has, or `last`
    #[arg(default_value = "last")]
    run: String,

    /// Prints JSON
    #[arg(long)]
    json: bool,
}

impl ShowArgs {
    /// Shows it.
    ///
    /// # Errors
    /// When there is no such run.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let folder = Store::of_user().find(&self.run)?;
        show_run(&folder, true, self.json, terminal)
    }
}
