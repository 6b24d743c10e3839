//! What developers of Tonnage run: `cargo xtask COMMAND`.

mod accuracy;
mod architectures;
mod bounds;
mod configs;
mod failures;
mod guides;
mod presets;
mod published;
mod recipes;

mod reference;
mod supervisor;
mod sweeps;
mod tidy;
mod timelines;
mod verdict_tally;
mod verdicts;
mod walk;

use anyhow::Result;
use clap::Parser;

/// What developers of Tonnage run.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Command {
    /// Estimate every reference case and compare with its measured figures.
    Accuracy(accuracy::Args),
    /// Hold the generic decoder against what was measured of real classes: parameters, ranges, verdicts.
    Architectures(architectures::Args),
    /// Write the event timelines of reference cases.
    Timelines(timelines::Args),
    /// Judge the verdicts by capacity: what every reference case truly needs, against what is said of GPUs around it.
    Verdicts(verdicts::Args),
    /// Run `tonnage estimate` over every built-in model.
    Presets(presets::Args),
    /// Write or check docs/guides-checked.md: the figures of five field guides beside ours.
    Guides(guides::Args),
    /// Write or check docs/failures.md: every failure that `tonnage doctor` recognises.
    Failures(failures::Args),
    /// Estimate what others measured on real GPUs and published, and hold it to its tolerance (docs/published.md).
    Published(published::Args),
    /// Measure every reader of files at its limit, and hold it to 500 MiB and 5 s of a processor (`cargo build --release` first).
    Bounds(bounds::Args),
    /// Run a command and write the memory and time that it took into a file; for `bounds`.
    #[command(hide = true)]
    Measured(bounds::Measured),
    /// Read every trainer's config below a folder: how many are answered, why the others are not, which keys nobody knows.
    Configs(configs::Args),
    /// Ask the program about every recipe of a trainer's checkout: how many are answered, and why the others are not.
    Recipes(recipes::Args),
    /// Time tables of many estimates (`cargo build --release` first).
    Sweeps(sweeps::Args),
    /// Measure what a supervisor costs beside its job, and hold it against its bars (`cargo build --release` first).
    Supervisor(supervisor::Args),
    /// Put every key of every task to values beyond reason: each call is answered or refused within 5 s and 500 MiB
    /// (`cargo build --release` first).
    Walk(walk::Args),
    /// Count the words of function names, crate by crate.
    Names,
    /// Check the house rules that no lint knows.
    Tidy,
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Accuracy(args) => accuracy::run(&args),
        Command::Configs(args) => configs::run(&args),
        Command::Architectures(args) => architectures::run(&args),
        Command::Bounds(args) => bounds::run(&args),
        Command::Measured(args) => bounds::print_measured(&args),
        Command::Timelines(args) => timelines::run(&args),
        Command::Verdicts(args) => verdicts::run(&args),
        Command::Presets(args) => presets::run(&args),
        Command::Guides(args) => guides::run(&args),
        Command::Failures(args) => failures::run(&args),
        Command::Published(args) => published::run(&args),
        Command::Recipes(args) => recipes::run(&args),
        Command::Sweeps(args) => sweeps::run(&args),
        Command::Supervisor(args) => supervisor::run(&args),
        Command::Walk(args) => walk::run(&args),
        Command::Names => tidy::print_names(),
        Command::Tidy => tidy::run(),
    }
}
