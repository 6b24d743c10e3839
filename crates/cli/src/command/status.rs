//! `tonnage status`: where a run is.

use clap::Args;
use tonnage_report::{run_json, text};
use tonnage_run::store::{RunFolder, Store};

use super::json;
use super::list::line;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Tells where a run is
#[derive(Args)]
#[command(after_help = "Examples:\n  tonnage status\n  tonnage status 20261121-120000 --json")]
pub struct StatusArgs {
    /// The run: its id, a part of it that no other has, or `last`, the newest that lives
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
        let folder = Store::of_user().find_living(&self.run)?;
        show(&folder, false, self.json, terminal)
    }
}

/// Prints a run; `full` with all that its attempts were given.
///
/// # Errors
/// When stdout cannot be written.
pub fn show(folder: &RunFolder, full: bool, as_json: bool, terminal: &Terminal) -> Result<Exit, Failure> {
    let (run, state, line) = (folder.run(), folder.state_now(), line(folder));
    if as_json {
        terminal.print(&json(&run_json(run, &state, &line))?)?;
    } else {
        terminal.print(&text::run(run, &state, &line, full, &terminal.look))?;
    }
    Ok(Exit::Done)
}
