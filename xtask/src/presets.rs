//! Runs `tonnage estimate` over every built-in model, as a user would, and checks what it answers.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tonnage_core::job::Preset;

/// Arguments of `presets`.
#[derive(clap::Args)]
pub struct Args {
    /// The binary to run.
    #[arg(long, default_value = "target/release/tonnage")]
    binary: PathBuf,
    /// How many runs the time is the best of.
    #[arg(long, default_value_t = 1)]
    runs: u32,
}

/// Estimates every preset and prints a line for each.
pub fn run(args: &Args) -> Result<()> {
    for preset in Preset::all() {
        let mut best = f64::INFINITY;
        let mut answer = Value::Null;
        for _ in 0..args.runs.max(1) {
            let started = Instant::now();
            answer = estimate_preset(args, preset.name).with_context(|| preset.name.to_owned())?;
            best = best.min(started.elapsed().as_secs_f64());
        }
        let total = answer["total_bytes"].as_u64().context("no `total_bytes` in the answer")?;
        let parameters = answer["model"]["param_count"].as_u64().context("no `model.param_count` in the answer")?;
        ensure!(
            parameters == preset.parameters,
            "{}: {parameters} parameters, published {}",
            preset.name,
            preset.parameters
        );
        println!("{:45} {parameters:>12} parameters {total:>14} bytes {:>6.1} ms", preset.name, best * 1e3);
    }
    Ok(())
}

fn estimate_preset(args: &Args, model: &str) -> Result<Value> {
    let output = Command::new(&args.binary)
        .args(["estimate", model, "--json"])
        .output()
        .with_context(|| format!("cannot run {}", args.binary.display()))?;
    // 0: fits, 1: does not fit; both are answers.
    if !matches!(output.status.code(), Some(0 | 1)) {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
