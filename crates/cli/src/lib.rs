//! What the program `tonnage` is made of: flags, terminal, exit codes. A command is one file in `command`; `question` is for programs
//! that ask the same in their own process, as the Python module does.
#![cfg_attr(not(unix), allow(dead_code, reason = "what commands need that are refused here"))]

mod brought;
mod clean;
mod command;
mod config_input;
mod duration;
mod exit;
mod failure;
mod gpu_input;
mod hub_cache;
mod installed;
mod job_args;
mod job_input;
mod log_text;
mod logs;
#[cfg(unix)]
mod model_folder;
mod patched;
pub mod question;
mod same_job;
mod small_gpt;
mod sweep;
mod terminal;
mod typed;
mod way_out;
mod weights;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use tonnage_core::nearest::nearest;

use command::line::{build_program_for, read_words};
use failure::Failure;
use terminal::Terminal;

/// The program: reads the words of the command line and answers.
pub fn main() -> ExitCode {
    let terminal = Terminal::detect();
    let typed: Vec<OsString> = std::env::args_os().collect();
    let gpu = way_out::typed_gpu(&typed);
    let fail = |failure: Failure| ExitCode::from(terminal.fail(&failure.on_gpu(gpu.as_deref())));
    let words = match brought::translate_flags(typed) {
        Ok(words) => typed::split_arguments(words),
        Err(failure) => return fail(failure),
    };
    let task = match read_words(&words) {
        Ok(task) => task,
        Err(error) => match way_out::of_words(&words, &error) {
            Some(failure) => return fail(failure),
            None => {
                way_out::on_gpu(refusal(&words, in_its_command(&words, without_guesses(error))), gpu.as_deref()).exit()
            }
        },
    };
    task(&terminal).map_or_else(fail, ExitCode::from)
}

/// clap's own guesses go by letters alone, and name flags that are something else.
fn without_guesses(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::ValueValidation {
        return without_usage(error);
    }
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    error.remove(ContextKind::Suggested);
    let guess = error.remove(ContextKind::SuggestedArg);
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg).cloned() else { return error };
    if let Some(ContextValue::String(guess)) = guess
        && nearest(typed.trim_start_matches('-'), [guess.trim_start_matches('-')]).is_some()
    {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(guess));
    } else {
        error.remove(ContextKind::Usage);
    }
    error
}

/// An assignment without `=` is shown how its own command is used; clap knows only the program's usage here.
fn in_its_command(words: &[OsString], error: clap::Error) -> clap::Error {
    let mut program = build_program_for(words);
    program.build();
    let command = words.get(1).and_then(|name| program.find_subcommand_mut(name.to_str()?));
    let Some(command) = command.filter(|_| error.kind() == ErrorKind::NoEquals) else { return error };
    let text = error.to_string();
    let said = text.split("\n\nUsage:").next().unwrap_or_default().trim_start_matches("error: ").trim_end().to_owned();
    clap::Error::raw(error.kind(), format!("{said}\n\n{}\n", command.render_usage()))
}

/// An error with a hint of its own needs no line of usage.
fn without_usage(error: clap::Error) -> clap::Error {
    let text = error.to_string();
    let Some((said, _)) = text.split_once("\n\nUsage:").filter(|(said, _)| said.contains("\nhint: ")) else {
        return error;
    };
    clap::Error::raw(error.kind(), format!("{}\n", said.trim_start_matches("error: ").trim_end()))
}

/// What is wrong with the words, said of words that a terminal can be shown.
fn refusal(words: &[OsString], error: clap::Error) -> clap::Error {
    let (first, others) = words.split_first().map_or((None, &[][..]), |(first, others)| (Some(first.clone()), others));
    let shown = others.iter().map(|word| OsString::from(clean::clean_plain(&word.to_string_lossy())));
    let shown: Vec<OsString> = first.into_iter().chain(shown).collect();
    if shown == words {
        return error;
    }
    let said = || clap::Error::raw(error.kind(), clean::clean_plain(&error.to_string()));
    read_words(&shown).err().map_or_else(said, without_guesses)
}
