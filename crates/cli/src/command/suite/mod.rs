//! `tonnage suite`: from one job to an experiment; a command is a file.

#[cfg(unix)]
mod export;
#[cfg(unix)]
mod exporters;
#[cfg(unix)]
pub mod living;
#[cfg(unix)]
mod look;
mod plan;
mod render;
#[cfg(unix)]
mod run;
mod source;
#[cfg(unix)]
pub mod status;
#[cfg(unix)]
mod submit;

use clap::Subcommand;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Plans and runs an experiment: configurations, seeds, groups
#[derive(Subcommand)]
pub enum SuiteCommand {
    Plan(plan::PlanArgs),
    Render(render::RenderArgs),
    #[cfg(unix)]
    Run(run::RunArgs),
    #[cfg(unix)]
    Submit(submit::SubmitArgs),
    #[cfg(unix)]
    Status(status::StatusArgs),
    #[cfg(unix)]
    Stop(status::StopArgs),
    #[cfg(unix)]
    Retry(status::RetryArgs),
    #[cfg(unix)]
    Export(export::ExportArgs),
}

impl SuiteCommand {
    /// Does what was asked.
    ///
    /// # Errors
    /// When it cannot be done.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        match self {
            Self::Plan(args) => args.run(terminal),
            Self::Render(args) => args.run(terminal),
            #[cfg(unix)]
            Self::Run(args) => args.run(terminal),
            #[cfg(unix)]
            Self::Submit(args) => args.run(terminal),
            #[cfg(unix)]
            Self::Status(args) => args.run(terminal),
            #[cfg(unix)]
            Self::Stop(args) => args.run(terminal),
            #[cfg(unix)]
            Self::Retry(args) => args.run(terminal),
            #[cfg(unix)]
            Self::Export(args) => args.run(terminal),
        }
    }
}
