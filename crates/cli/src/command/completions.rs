//! `tonnage completions`: what shells complete.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Prints a completion script for a shell
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tonnage completions bash > ~/.local/share/bash-completion/completions/tonnage\n  \
    tonnage completions zsh > ~/.zfunc/_tonnage"
)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

impl CompletionsArgs {
    /// Prints it.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "tonnage", &mut script);
        terminal.print(&String::from_utf8_lossy(&script))?;
        Ok(Exit::Done)
    }
}
