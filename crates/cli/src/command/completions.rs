//! `tonnage completions`: what shells complete.

use clap::builder::PossibleValuesParser;
use clap::{Args, Command};
use clap_complete::Shell;
use tonnage_core::gpu::catalog;
use tonnage_core::job::Preset;
use tonnage_core::job::keys;

use super::line::build_program;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::gpu_input::LIVE;
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

/// The command line with the names that models and GPUs have: paths are taken as well, so that only shells are told of them.
fn with_names(cli: Command) -> Command {
    let models = PossibleValuesParser::new(model_names());
    let gpus = PossibleValuesParser::new(gpu_names());
    cli.mut_subcommands(|command| {
        command.mut_args(|argument| match argument.get_id().as_str() {
            "MODEL" | "models" => argument.value_parser(models.clone()).hide_possible_values(true),
            keys::GPU | "gpus" => argument.value_parser(gpus.clone()).hide_possible_values(true),
            _ => argument,
        })
    })
}

/// Names of the hub, and short in lowercase, as one types them.
fn model_names() -> Vec<String> {
    let full = Preset::all().iter().map(|preset| preset.name.to_owned());
    let short = Preset::all().iter().filter_map(|preset| Some(preset.name.rsplit('/').next()?.to_lowercase()));
    full.chain(short).collect()
}

fn gpu_names() -> Vec<String> {
    let rows = catalog().iter().map(|row| row.id.clone());
    rows.chain([LIVE.to_owned()]).collect()
}

impl CompletionsArgs {
    /// Prints it.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut with_names(build_program()), "tonnage", &mut script);
        terminal.print(&String::from_utf8_lossy(&script))?;
        Ok(Exit::Done)
    }
}
