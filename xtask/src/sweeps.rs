//! How long tables of many estimates take, as processes: a benchmark, not a test.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Arguments of `sweeps`.
#[derive(clap::Args)]
pub struct Args {
    /// The binary to run.
    #[arg(long, default_value = "target/release/tonnage")]
    binary: PathBuf,
    /// How many runs the best is taken of.
    #[arg(long, default_value_t = 3)]
    runs: u32,
}

/// A table: its name, what it is meant to take, and its arguments.
struct Sweep {
    name: &'static str,
    bar: Duration,
    arguments: Vec<String>,
}

/// Prints the best of some runs of each, beside its bar.
pub fn run(args: &Args) -> Result<()> {
    for sweep in [table_sweep(), ten_thousand(), large_model(false), large_model(true)] {
        let times: Vec<Duration> = (0..args.runs.max(1)).map(|_| time_sweep(args, &sweep)).collect::<Result<_>>()?;
        let best = times.into_iter().min().unwrap_or_default();
        let share = best.as_secs_f64() / sweep.bar.as_secs_f64();
        println!("{:40} {:>8.2} s of {:>5.1} s: {share:.2}", sweep.name, best.as_secs_f64(), sweep.bar.as_secs_f64());
    }
    Ok(())
}

/// Seven GPUs and seven batches of a job with a judge.
fn table_sweep() -> Sweep {
    let arguments = "fit examples/grpo-7b-judge-14b.toml --gpus b200,h200,h100,a100-80,a100-40,l40s,rtx-4090 \
                     --rows 1,4,8,16,32,64,128 --no-largest --json";
    Sweep {
        name: "7 GPUs x 7 batches, 7B and a judge of 14B",
        bar: Duration::from_secs(1),
        arguments: arguments.split_whitespace().map(str::to_owned).collect(),
    }
}

/// Lengths, rows and precisions of GPT-2: 10,000 configurations.
fn ten_thousand() -> Sweep {
    let list = |values: Vec<u64>| values.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let lengths = list((1..=100).map(|n| n * 10).collect());
    let rows = list((1..=25).collect());
    let arguments = ["fit", "gpt2", "--seq-len", &lengths, "--rows", &rows, "--no-largest", "--json", "--set"];
    let mut arguments: Vec<String> = arguments.map(str::to_owned).to_vec();
    arguments.push("precision=fp32,bf16,amp-bf16,amp-fp16".to_owned());
    Sweep { name: "10,000 configurations of GPT-2", bar: Duration::from_secs(20), arguments }
}

/// The same number of a model of 8 billion parameters, where most do not fit.
fn large_model(prune: bool) -> Sweep {
    let list = |values: Vec<u64>| values.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let lengths = list((1..=100).map(|n| n * 64).collect());
    let rows = list((1..=25).collect());
    let fixed =
        ["fit", "llama-3.1-8b", "--gpus", "h100", "--seq-len", &lengths, "--rows", &rows, "--no-largest", "--json"];
    let sets = ["--set", "precision=bf16,amp-bf16", "--set", "gradient_checkpointing=true,false"];
    let arguments = fixed.into_iter().chain(sets).chain(prune.then_some("--prune"));
    Sweep {
        name: if prune { "10,000 of Llama 8B, pruned" } else { "10,000 of Llama 8B" },
        bar: Duration::from_secs(20),
        arguments: arguments.map(str::to_owned).collect(),
    }
}

fn time_sweep(args: &Args, sweep: &Sweep) -> Result<Duration> {
    let started = Instant::now();
    let status = Command::new(&args.binary)
        .args(&sweep.arguments)
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {}", args.binary.display()))?;
    // 1: nothing fits, which is an answer.
    ensure!(matches!(status.code(), Some(0 | 1)), "{}: {status}", sweep.name);
    Ok(started.elapsed())
}
