//! `tonnage attach`: follows a detached run as if it ran here; Ctrl-C leaves it alone.

use std::time::Duration;

use clap::Args;
use tonnage_report::text;
use tonnage_run::store::Store;

use super::list::run_line;
use super::logs::LogReader;
use super::status::show_run;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// How often logs are looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Follows a run from now on until it ends; Ctrl-C leaves the run alone
#[derive(Args)]
#[command(after_help = "Examples:\n  tonnage attach\n  tonnage attach 20261121-120000")]
pub struct AttachArgs {
    /// The run: its id, a part of it that no other has, or `last`, the newest that lives
    #[arg(default_value = "last")]
    run: String,

    /// Prints JSON: an object a line, as `tonnage logs --json`, and at the end the run as `tonnage show --json`
    #[arg(long)]
    json: bool,
}

impl AttachArgs {
    /// Follows it.
    ///
    /// # Errors
    /// When there is no such run.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let folder = Store::of_user().find_living(&self.run)?;
        let mut reader = LogReader::new(&folder, None, None, true);
        reader.as_json = self.json;
        reader.print_new(terminal)?;
        while folder.is_supervised() {
            std::thread::sleep(LOOK);
            reader.print_new(terminal)?;
        }
        reader.print_new(terminal)?;
        reader.print_rests(terminal)?;
        let state = folder.state();
        if self.json {
            show_run(&folder, true, true, terminal)?;
        } else {
            terminal.tell(&text::run_screen(folder.run(), &state, &run_line(&folder), false, &terminal.look));
        }
        Ok(state.result.as_ref().map_or(Exit::No, super::supervise::exit_of))
    }
}
