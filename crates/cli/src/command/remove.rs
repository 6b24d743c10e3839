//! `tonnage remove`: forgets runs that have ended.

use clap::Args;
use serde_json::json;
use tonnage_run::store::{RunFolder, Store};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Removes runs that have ended, with all their records and logs
#[derive(Args)]
#[command(after_help = "Examples:\n  tonnage remove 20261121-120000\n  tonnage remove --keep 20")]
pub struct RemoveArgs {
    /// The runs: ids, or parts of them that no other has
    #[arg(value_name = "RUN", required_unless_present = "keep")]
    runs: Vec<String>,

    /// Removes all that have ended but the newest so many
    #[arg(long, value_name = "N", conflicts_with = "runs")]
    keep: Option<usize>,

    /// Prints JSON
    #[arg(long)]
    json: bool,
}

impl RemoveArgs {
    /// Removes them.
    ///
    /// # Errors
    /// When there is no such run, or one of them lives.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let store = Store::of_user();
        let removed = match self.keep {
            Some(keep) => {
                let mut ended: Vec<RunFolder> = store.list().into_iter().filter(|run| !run_lives(run)).collect();
                ended.truncate(ended.len().saturating_sub(keep));
                ended
            }
            None => self.runs.iter().map(|name| find_run(&store, name)).collect::<Result<Vec<_>, _>>()?,
        };
        let ids: Vec<String> = removed.iter().map(|run| run.id().to_owned()).collect();
        for run in removed {
            run.remove()?;
        }
        if self.json {
            terminal.print(&format!("{:#}\n", json!({"version": tonnage_report::VERSION, "removed": ids})))?;
        } else {
            terminal.print(&ids.iter().map(|id| format!("{id}\n")).collect::<String>())?;
        }
        Ok(Exit::Done)
    }
}

fn run_lives(run: &RunFolder) -> bool {
    run.is_supervised() || !run.left_behind().is_empty()
}

fn find_run(store: &Store, name: &str) -> Result<RunFolder, Failure> {
    let run = store.find(name)?;
    if run_lives(&run) {
        let failure = Failure::bad_input(format!("run {} lives: nothing was removed", run.id()));
        return Err(failure.with_hint(format!("`tonnage stop {}` first", run.id())));
    }
    Ok(run)
}
