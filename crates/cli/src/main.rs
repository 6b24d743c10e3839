//! `tonnage`: flags, terminal, exit codes. A command is one file in `command`.

mod clean;
mod command;
mod duration;
mod exit;
mod failure;
mod gpu_input;
mod job_args;
mod job_input;
mod log_text;
mod logs;
mod patched;
mod sweep;
mod terminal;
mod text_file;
mod typed;
mod weights;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use command::Cli;
use terminal::Terminal;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let terminal = Terminal::detect();
    let words: Vec<OsString> = typed::arguments(std::env::args_os()).into_iter().collect();
    let cli = Cli::try_parse_from(&words).unwrap_or_else(|error| refusal(&words, error).exit());
    match cli.run(&terminal) {
        Ok(exit) => exit.into(),
        Err(failure) => terminal.fail(&failure).into(),
    }
}

/// What is wrong with the words, said of words that a terminal can be shown.
fn refusal(words: &[OsString], error: clap::Error) -> clap::Error {
    let (first, others) = words.split_first().map_or((None, &[][..]), |(first, others)| (Some(first.clone()), others));
    let shown = others.iter().map(|word| OsString::from(clean::plain(&word.to_string_lossy())));
    let shown: Vec<OsString> = first.into_iter().chain(shown).collect();
    if shown == words {
        return error;
    }
    let said = || clap::Error::raw(error.kind(), clean::plain(&error.to_string()));
    Cli::try_parse_from(shown).err().unwrap_or_else(said)
}
