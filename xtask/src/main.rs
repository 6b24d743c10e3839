//! What developers of Tonnage run: accuracy, tidy, generated files.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;

/// Developer commands.
#[derive(Parser)]
enum Command {
    /// Write the timelines of reference cases.
    Timelines {
        /// The case file.
        #[arg(long)]
        cases: PathBuf,
        /// The folder to write to.
        #[arg(long)]
        out: PathBuf,
    },
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Timelines { cases, out } => timelines(&cases, &out),
    }
}

fn timelines(cases: &PathBuf, out: &PathBuf) -> Result<()> {
    let text = std::fs::read_to_string(cases).with_context(|| cases.display().to_string())?;
    let cases: Vec<serde_json::Value> = serde_json::from_str(&text)?;
    std::fs::create_dir_all(out)?;
    for case in &cases {
        let id = case["id"].as_str().unwrap_or("case");
        let job = match tonnage_core::spec::from_case(case) {
            Ok(job) => job,
            Err(error) => {
                eprintln!("{id}: {error}");
                continue;
            }
        };
        match tonnage_core::step::simulate(&job) {
            Ok(simulation) => {
                let mut config = tonnage_core::alloc::CachingAllocator::new(job.allocator.clone(), None);
                let replayed = tonnage_core::alloc::replay_trace(&mut config, &simulation.trace);
                let stats = config.stats();
                println!(
                    "{id} {} {} {} {:?}",
                    stats.peak_rounded512,
                    stats.peak_allocated,
                    stats.peak_reserved,
                    replayed.is_ok()
                );
                std::fs::write(
                    out.join(format!("{id}.jsonl")),
                    tonnage_core::recording::write_timeline(&simulation.trace),
                )?;
            }
            Err(error) => eprintln!("{id}: {error}"),
        }
    }
    Ok(())
}
