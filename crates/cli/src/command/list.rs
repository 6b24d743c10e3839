//! `tonnage list`: all runs.

use clap::Args;
use serde_json::json;
use tonnage_report::{RunLine, text};
use tonnage_run::clock::now_ms;
use tonnage_run::store::{RunFolder, Store};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Lists runs, the oldest first
#[derive(Args)]
#[command(after_help = "Examples:\n  tonnage list\n  tonnage list --json")]
pub struct ListArgs {
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

impl ListArgs {
    /// Lists them.
    ///
    /// # Errors
    /// When nothing can be printed.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let runs = Store::of_user().list();
        let lines: Vec<RunLine> = runs.iter().map(run_line).collect();
        if self.json {
            terminal.print(&format!("{:#}\n", json!({"version": tonnage_report::VERSION, "runs": lines})))?;
        } else {
            terminal.print(&text::run_table(&lines, &terminal.look))?;
        }
        Ok(Exit::Done)
    }
}

/// A run in a line, as it is now.
pub fn run_line(folder: &RunFolder) -> RunLine {
    let state = folder.state_now();
    let line = RunLine::new(folder.run(), &state, folder.is_supervised(), now_ms());
    // Who ended is not looked for.
    let left = if state.result.is_some() { Vec::new() } else { folder.left_behind() };
    line.with_left_behind(left.into_iter().map(|process| process.pid).collect())
}
