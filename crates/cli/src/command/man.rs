//! `tonnage man`: manual pages.

use clap::Args;

use super::line::build_program;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Prints the manual page of a command
#[derive(Args)]
#[command(after_help = "Examples:\n  tonnage man | man -l -\n  tonnage man estimate | man -l -")]
pub struct ManArgs {
    /// The command; without one, the page of tonnage itself
    command: Option<String>,
}

impl ManArgs {
    /// Prints it.
    ///
    /// # Errors
    /// When there is no such command.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let root = build_program();
        let command = match &self.command {
            None => root,
            Some(name) => {
                let found = root.get_subcommands().find(|command| command.get_name() == name);
                let unknown =
                    || Failure::bad_input(format!("no command is called `{name}`")).with_hint("see `tonnage --help`");
                found.ok_or_else(unknown)?.clone().name(format!("tonnage-{name}"))
            }
        };
        let mut page = Vec::new();
        // Writing to memory does not fail.
        let _ = clap_mangen::Man::new(command).render(&mut page);
        terminal.print(&String::from_utf8_lossy(&page))?;
        Ok(Exit::Done)
    }
}
