//! `tonnage`: flags, terminal, exit codes. A command is one file in `command`.

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

use std::process::ExitCode;

use clap::Parser;

use command::Cli;
use terminal::Terminal;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let terminal = Terminal::detect();
    match Cli::parse_from(typed::arguments(std::env::args_os())).run(&terminal) {
        Ok(exit) => exit.into(),
        Err(failure) => terminal.fail(&failure).into(),
    }
}
