//! Writes `docs/guides-checked.md`: every figure of five field guides about memory, batches, nodes, hours and cost
//! beside ours, computed as the document is made. What a guide says is quoted as it says it; no figure of ours is typed.

mod commands;
mod fork;
mod grpo;
mod grpo_guide;
mod hrm;
mod hrm_cost;
mod markdown;
mod question;
mod sapo;
mod small_gpt;
mod suites;
mod together;

use std::fs;
use std::path::PathBuf;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};

/// Arguments of `guides`.
#[derive(clap::Args)]
pub struct Args {
    /// The page to write or check.
    #[arg(long, default_value = "docs/guides-checked.md")]
    out: PathBuf,
    /// Fails when the document is not what would be written, and writes nothing.
    #[arg(long)]
    check: bool,
    /// Runs every command of the document with this program, and fails where one does not print the figures beside it.
    #[arg(long, value_name = "TONNAGE", conflicts_with = "check")]
    commands: Option<PathBuf>,
}

const INTRODUCTION: &str = include_str!("introduction.md");

/// A part of the document.
type Section = fn() -> Result<String>;

/// In the order of the document; independent of each other.
const SECTIONS: [Section; 8] = [
    sapo::sapo_section,
    fork::fork_section,
    grpo::grpo_section,
    grpo::small_section,
    hrm::hrm_section,
    small_gpt::small_gpt_section,
    together::together_section,
    suites::suites_section,
];

/// Writes the document, or checks it.
pub fn run(args: &Args) -> Result<()> {
    if let Some(program) = &args.commands {
        let written = fs::read_to_string(&args.out).with_context(|| args.out.display().to_string())?;
        return commands::check_document(&written, program);
    }
    let document = guides_page()?;
    let path = &args.out;
    if !args.check {
        return fs::write(path, document).with_context(|| path.display().to_string());
    }
    let written = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let differs = document.lines().zip(written.lines()).find(|(now, then)| now != then);
    let place = differs.map_or_else(String::new, |(now, then)| format!("\n- {then}\n+ {now}"));
    ensure!(document == written, "{} is out of date: run `cargo xtask guides`{place}", path.display());
    Ok(())
}

fn guides_page() -> Result<String> {
    let sections: Result<Vec<String>> = thread::scope(|scope| {
        let running: Vec<_> = SECTIONS.map(|section| scope.spawn(section)).into_iter().collect();
        running.into_iter().map(|section| section.join().map_err(|_| anyhow!("a section panicked"))?).collect()
    });
    let text = format!("{INTRODUCTION}\n{}", sections?.concat());
    Ok(format!("{}\n", text.trim_end()))
}
