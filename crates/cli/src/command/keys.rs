//! `tonnage keys`: the keys of a job, from the one table.

use clap::Args;
use tonnage_core::spec::{KEYS, Key};
use tonnage_report::text;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Lists the keys of a job: in a job file, as flags, with --set and --compare
#[derive(Args)]
#[command(after_help = "Examples:\n  tonnage keys\n  tonnage keys optimizer")]
pub struct KeysArgs {
    /// Shows only keys whose name contains this, with the values they take
    filter: Option<String>,
}

impl KeysArgs {
    /// Lists them.
    ///
    /// # Errors
    /// When none has such a name.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let wanted = self.filter.as_deref().unwrap_or_default().to_lowercase().replace('-', "_");
        let keys: Vec<&Key> = KEYS.iter().filter(|key| key.name.contains(&wanted)).collect();
        if keys.is_empty() {
            return Err(Failure::input(format!("no key is called `{wanted}`")).hint("`tonnage keys` lists them all"));
        }
        terminal.print(&text::keys(&keys, self.filter.is_some(), &terminal.look))?;
        Ok(Exit::Done)
    }
}
