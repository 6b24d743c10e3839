//! The commands, a file each: its arguments and `run`.

#[cfg(unix)]
mod attach;
mod axes;
mod check;
mod colours;
mod compare;
mod completions;
pub mod cost;
pub mod doctor;
#[cfg(not(unix))]
mod elsewhere;
pub mod estimate;
pub mod fit;
#[cfg(unix)]
mod generate;
pub mod gpus;
#[cfg(unix)]
mod keep;
mod keys;
#[cfg(unix)]
mod list;
#[cfg(unix)]
mod logs;
mod man;
pub mod models;
pub mod plan;
#[cfg(unix)]
mod probe;
#[cfg(unix)]
mod rehearse;
#[cfg(unix)]
mod remove;
mod report;
#[cfg(unix)]
mod run;
mod schema;
#[cfg(unix)]
mod show;
mod solve;
#[cfg(unix)]
mod status;
#[cfg(unix)]
mod stop;
mod suite;
#[cfg(unix)]
mod supervise;
pub mod trace;
#[cfg(unix)]
mod train;
mod watch;

use clap::builder::Styles;
use clap::builder::styling::AnsiColor;
use clap::{Parser, Subcommand};

#[cfg(not(unix))]
use elsewhere::{
    attach, generate, keep, list, logs, probe, rehearse, remove, run, show, status, stop, supervise, train,
};

use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::terminal::Terminal;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(AnsiColor::Cyan.on_default());

/// The GPU memory of a PyTorch training job, to the byte, before you rent the GPU.
#[derive(Parser)]
#[command(name = "tonnage", version, styles = STYLES, after_help = exit::HELP, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Estimate(Box<estimate::EstimateArgs>),
    Fit(Box<fit::FitArgs>),
    Plan(Box<plan::PlanArgs>),
    Check(Box<check::CheckArgs>),
    Doctor(doctor::DoctorArgs),
    Cost(Box<cost::CostArgs>),
    Watch(Box<watch::WatchArgs>),
    Run(Box<run::RunArgs>),
    Probe(Box<probe::ProbeArgs>),
    Status(status::StatusArgs),
    Attach(attach::AttachArgs),
    Logs(logs::LogsArgs),
    Stop(stop::StopArgs),
    Show(show::ShowArgs),
    List(list::ListArgs),
    Remove(remove::RemoveArgs),
    #[command(hide = true)]
    Guardian(keep::GuardianArgs),
    #[command(hide = true)]
    Keep(keep::KeepArgs),
    #[command(hide = true)]
    Begin(keep::BeginArgs),
    #[command(hide = true)]
    Supervise(supervise::SuperviseArgs),
    Rehearse(Box<rehearse::RehearseArgs>),
    Train(Box<train::TrainArgs>),
    #[command(hide = true)]
    Trainer(Box<train::TrainerArgs>),
    Generate(Box<generate::GenerateArgs>),
    Report(Box<report::ReportArgs>),
    #[command(subcommand)]
    Suite(Box<suite::SuiteCommand>),
    Models(models::ModelsArgs),
    Gpus(gpus::GpusArgs),
    Keys(keys::KeysArgs),
    Schema(schema::SchemaArgs),
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

impl Cli {
    /// Does what was asked.
    ///
    /// # Errors
    /// When it cannot be done.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        match self.command {
            Command::Estimate(args) => args.run(terminal),
            Command::Fit(args) => args.run(terminal),
            Command::Plan(args) => args.run(terminal),
            Command::Check(args) => args.run(terminal),
            Command::Doctor(args) => args.run(terminal),
            Command::Cost(args) => args.run(terminal),
            Command::Watch(args) => args.run(terminal),
            Command::Run(args) => args.run(terminal),
            Command::Probe(args) => args.run(terminal),
            Command::Status(args) => args.run(terminal),
            Command::Attach(args) => args.run(terminal),
            Command::Logs(args) => args.run(terminal),
            Command::Stop(args) => args.run(terminal),
            Command::Show(args) => args.run(terminal),
            Command::List(args) => args.run(terminal),
            Command::Remove(args) => args.run(terminal),
            Command::Guardian(args) => args.run(terminal),
            Command::Keep(args) => args.run(terminal),
            Command::Begin(args) => args.run(terminal),
            Command::Supervise(args) => args.run(terminal),
            Command::Rehearse(args) => args.run(terminal),
            Command::Train(args) => args.run(terminal),
            Command::Trainer(args) => args.run(terminal),
            Command::Generate(args) => args.run(terminal),
            Command::Report(args) => args.run(terminal),
            Command::Suite(command) => command.run(terminal),
            Command::Models(args) => args.run(terminal),
            Command::Gpus(args) => args.run(terminal),
            Command::Keys(args) => args.run(terminal),
            Command::Schema(args) => args.run(terminal),
            Command::Trace(command) => command.run(terminal),
            Command::Completions(args) => args.run(terminal),
            Command::Man(args) => args.run(terminal),
        }
    }
}

/// A document as text.
pub fn json(view: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(view).map_err(|error| Failure::bad_input(error.to_string()))?;
    Ok(text + "\n")
}
