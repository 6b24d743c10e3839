//! `tonnage keys`: the keys of a job, from the one table.

use clap::Args;
use serde_json::json;
use tonnage_core::job::{KEYS, Key, Kind};
use tonnage_report::text;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Lists the keys of a job: in a job file, as flags, with --set and --compare
#[derive(Args)]
#[command(after_help = "Examples:\n  tonnage keys\n  tonnage keys optimizer\n  tonnage keys --json")]
pub struct KeysArgs {
    /// Shows only keys whose name contains this, with the values they take
    filter: Option<String>,

    /// Prints JSON
    #[arg(long)]
    json: bool,
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
            return Err(
                Failure::bad_input(format!("no key is called `{wanted}`")).with_hint("`tonnage keys` lists them all")
            );
        }
        if self.json {
            let keys: Vec<_> = keys.into_iter().map(key_json).collect();
            terminal.print(&format!("{:#}\n", json!({"version": 1, "keys": keys})))?;
        } else {
            terminal.print(&text::key_table(&keys, self.filter.is_some(), &terminal.look))?;
        }
        Ok(Exit::Done)
    }
}

fn key_json(key: &Key) -> serde_json::Value {
    let choices = match key.kind {
        Kind::Choice(choices) => choices.iter().map(|(word, _)| *word).collect(),
        _ => Vec::new(),
    };
    json!({
        "name": key.name,
        "flag": key.flag(),
        "default": key.default_text(),
        "choices": choices,
        "doc": key.doc,
        "example": key.example,
    })
}
