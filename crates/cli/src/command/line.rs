//! The list of the commands, and how the words of a line become one that runs. Only the command that is typed is built: to build them all
//! takes longer than most of them take to answer.

use std::ffi::OsString;

use clap::builder::Styles;
use clap::builder::styling::AnsiColor;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

#[cfg(not(unix))]
use super::elsewhere::{
    attach, generate, keep, list, logs, probe, rehearse, remove, run, show, status, stop, supervise, train,
};
#[cfg(unix)]
use super::{attach, generate, keep, list, logs, probe, rehearse, remove, run, show, status, stop, supervise, train};
use super::{
    check, completions, cost, doctor, estimate, fit, gpus, keys, man, models, plan, report, schema, suite, trace, watch,
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
#[command(subcommand_required = true, arg_required_else_help = true)]
struct Program {}

/// A command with all that was typed for it.
pub type Task = Box<dyn FnOnce(&Terminal) -> Result<Exit, Failure>>;

/// A command, not built yet.
struct Entry {
    name: &'static str,
    /// Whether help names it; commands start the others.
    is_listed: bool,
    add_arguments: fn(clap::Command) -> clap::Command,
    read: fn(&mut ArgMatches) -> Result<Task, clap::Error>,
}

impl Entry {
    const fn unlisted(self) -> Self {
        Self { is_listed: false, ..self }
    }

    fn build_command(&self) -> clap::Command {
        (self.add_arguments)(clap::Command::new(self.name)).hide(!self.is_listed)
    }
}

/// A command of flags and words.
macro_rules! command {
    ($name:literal, $args:ty) => {
        entry!($name, $args, <$args as Args>::augment_args)
    };
}

/// A command of commands.
macro_rules! group {
    ($name:literal, $args:ty) => {
        entry!($name, $args, |command| {
            <$args as Subcommand>::augment_subcommands(command).subcommand_required(true).arg_required_else_help(true)
        })
    };
}

macro_rules! entry {
    ($name:literal, $args:ty, $arguments:expr) => {
        Entry {
            name: $name,
            is_listed: true,
            add_arguments: $arguments,
            read: |found| {
                let args = <$args as FromArgMatches>::from_arg_matches_mut(found)?;
                Ok(Box::new(move |terminal| args.run(terminal)))
            },
        }
    };
}

static COMMANDS: [Entry; 33] = [
    command!("estimate", estimate::EstimateArgs),
    command!("fit", fit::FitArgs),
    command!("plan", plan::PlanArgs),
    command!("check", check::CheckArgs),
    command!("doctor", doctor::DoctorArgs),
    command!("cost", cost::CostArgs),
    command!("watch", watch::WatchArgs),
    command!("run", run::RunArgs),
    command!("probe", probe::ProbeArgs),
    command!("status", status::StatusArgs),
    command!("attach", attach::AttachArgs),
    command!("logs", logs::LogsArgs),
    command!("stop", stop::StopArgs),
    command!("show", show::ShowArgs),
    command!("list", list::ListArgs),
    command!("remove", remove::RemoveArgs),
    command!("guardian", keep::GuardianArgs).unlisted(),
    command!("keep", keep::KeepArgs).unlisted(),
    command!("begin", keep::BeginArgs).unlisted(),
    command!("supervise", supervise::SuperviseArgs).unlisted(),
    command!("rehearse", rehearse::RehearseArgs),
    command!("train", train::TrainArgs),
    command!("trainer", train::TrainerArgs).unlisted(),
    command!("generate", generate::GenerateArgs),
    command!("report", report::ReportArgs),
    group!("suite", suite::SuiteCommand),
    command!("models", models::ModelsArgs),
    command!("gpus", gpus::GpusArgs),
    command!("keys", keys::KeysArgs),
    command!("schema", schema::SchemaArgs),
    group!("trace", trace::TraceCommand),
    command!("completions", completions::CompletionsArgs),
    command!("man", man::ManArgs),
];

fn find_entry(name: &str) -> Option<&'static Entry> {
    COMMANDS.iter().find(|entry| entry.name == name)
}

/// One command by its name.
pub fn build_command(name: &str) -> Option<clap::Command> {
    find_entry(name).map(Entry::build_command)
}

/// The program with all its commands.
pub fn build_program() -> clap::Command {
    Program::command().subcommands(COMMANDS.iter().map(Entry::build_command))
}

/// As much of the program as the answer to `words` depends on: where they begin with no command, help or a guess may name any.
pub fn build_program_for(words: &[OsString]) -> clap::Command {
    let first = words.get(1).and_then(|word| word.to_str());
    if matches!(first, Some("--version" | "-V")) {
        return Program::command();
    }
    match first.and_then(build_command) {
        Some(command) => Program::command().subcommand(command),
        None => build_program(),
    }
}

/// The command that `words` are, the program's name among them.
///
/// # Errors
/// When they are none; help and the version are errors of clap's too.
pub fn read_words(words: &[OsString]) -> Result<Task, clap::Error> {
    let mut program = build_program_for(words);
    let mut found = program.try_get_matches_from_mut(words)?;
    let typed = found.remove_subcommand();
    let (entry, mut typed) = typed
        .and_then(|(name, typed)| Some((find_entry(&name)?, typed)))
        .ok_or_else(|| program.error(clap::error::ErrorKind::MissingSubcommand, "a command is missing"))?;
    (entry.read)(&mut typed).map_err(|error| error.format(&mut program))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn only_the_command_that_is_typed_is_built() {
        for entry in &COMMANDS {
            let program = build_program_for(&words(&format!("tonnage {} --flag", entry.name)));
            let built: Vec<_> = program.get_subcommands().map(clap::Command::get_name).collect();
            assert_eq!(built, [entry.name]);
        }
        assert_eq!(build_program_for(&words("tonnage --version")).get_subcommands().count(), 0);
        for line in ["tonnage", "tonnage --help", "tonnage help fit", "tonnage fitt", "tonnage -v"] {
            assert_eq!(build_program_for(&words(line)).get_subcommands().count(), COMMANDS.len(), "{line}");
        }
    }

    #[test]
    fn a_command_alone_refuses_and_helps_as_among_all() {
        for entry in &COMMANDS {
            for rest in ["--help", "-h", "--no-such-flag", "--seq-len many one two three"] {
                let words = words(&format!("tonnage {} {rest}", entry.name));
                let said = |mut program: clap::Command| {
                    program.try_get_matches_from_mut(&words).map_err(|error| error.to_string()).map(|_| ())
                };
                assert_eq!(said(build_program_for(&words)), said(build_program()), "{words:?}");
            }
        }
    }

    #[test]
    fn the_commands_are_sound() {
        build_program().debug_assert();
    }
}
