//! Writes the event timelines of reference cases, for comparison with measured ones.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use tonnage_core::recording::write_timeline;
use tonnage_core::{job, step};

use crate::reference;

/// Arguments of `timelines`.
#[derive(clap::Args)]
pub struct Args {
    /// The case file.
    #[arg(long)]
    cases: PathBuf,
    /// The folder to write `ID.jsonl` to.
    #[arg(long)]
    out: PathBuf,
}

/// Writes a timeline for every case that can be simulated, and says which cannot.
pub fn run(args: &Args) -> Result<()> {
    fs::create_dir_all(&args.out)?;
    for case in &reference::read_cases(&args.cases)? {
        let id = reference::case_id(case);
        let simulated = job::from_case(case).map_err(anyhow::Error::from).and_then(|job| Ok(step::simulate(&job)?));
        match simulated {
            Ok(simulation) => {
                fs::write(args.out.join(format!("{id}.jsonl")), write_timeline(&simulation.trace))?;
            }
            Err(error) => eprintln!("{id}: {error:#}"),
        }
    }
    Ok(())
}
