//! What developers of Tonnage run: `cargo xtask COMMAND`.

mod accuracy;
mod reference;
mod timelines;

use anyhow::Result;
use clap::Parser;

/// Developer commands.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Command {
    /// Estimate every reference case and compare with its measured figures.
    Accuracy(accuracy::Args),
    /// Write the event timelines of reference cases.
    Timelines(timelines::Args),
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Accuracy(args) => accuracy::run(&args),
        Command::Timelines(args) => timelines::run(&args),
    }
}
