//! Every key of every task with values beyond reason, through the binary: each is answered or refused, within bounds of time
//! and memory. Processor time is counted, so that a busy machine changes nothing.

mod jobs;
mod outcome;
mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Result, ensure};

use jobs::Call;
use outcome::{Bounds, Outcome};

/// Arguments of `walk`.
#[derive(clap::Args)]
pub struct Args {
    /// The binary to run.
    #[arg(long, default_value = "target/release/tonnage")]
    binary: PathBuf,
    /// Takes one of so many calls.
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Which of them.
    #[arg(long, default_value_t = 0)]
    offset: usize,
    /// How many run at once.
    #[arg(long, default_value_t = 2)]
    at_once: usize,
    /// The most seconds of processor time of a call.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// The most memory of a call.
    #[arg(long, default_value_t = 500)]
    mib: u64,
    /// How many of the worst are printed.
    #[arg(long, default_value_t = 15)]
    worst: usize,
    /// Only calls whose command line has this in it.
    #[arg(long)]
    only: Option<String>,
}

/// Runs them all and prints the worst; fails where one was not answered within its bounds.
pub fn run(args: &Args) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("tonnage-walk-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let walked = walk_calls(args, &folder);
    std::fs::remove_dir_all(&folder)?;
    let (calls, outcomes) = walked?;
    print_outcomes(args, &calls, &outcomes);
    let failed = outcomes.values().filter(|outcome| outcome.fault.is_some()).count();
    ensure!(failed == 0, "{failed} of {} calls were not answered within their bounds", outcomes.len());
    Ok(())
}

fn walk_calls(args: &Args, folder: &Path) -> Result<(Vec<Call>, BTreeMap<usize, Outcome>)> {
    let wanted = |call: &Call| args.only.as_ref().is_none_or(|only| call.text().contains(only.as_str()));
    let calls = jobs::make_calls(folder)?.into_iter().filter(wanted);
    let calls: Vec<Call> = calls.skip(args.offset).step_by(args.every.max(1)).collect();
    let bounds = Bounds { seconds: args.seconds, bytes: args.mib << 20 };
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || -> Result<()> {
        while let Some((at, call)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, calls.get(at)?)))
        {
            let outcome = outcome::of(&args.binary, call, bounds)?;
            if let Ok(mut outcomes) = outcomes.lock() {
                outcomes.insert(at, outcome);
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..args.at_once.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| anyhow::bail!("a worker panicked")))
    })?;
    Ok((calls, outcomes.into_inner().unwrap_or_default()))
}

fn print_outcomes(args: &Args, calls: &[Call], outcomes: &BTreeMap<usize, Outcome>) {
    let row = |(at, outcome): (&usize, &Outcome)| {
        let fault = outcome.fault.as_deref().unwrap_or("");
        println!("{:7.2} s {:6} MiB  {}  {fault}", outcome.seconds, outcome.bytes >> 20, calls[*at].text());
    };
    let mut by: Vec<_> = outcomes.iter().collect();
    by.sort_by(|one, other| other.1.seconds.total_cmp(&one.1.seconds));
    println!("most processor time");
    by.iter().take(args.worst).copied().for_each(row);
    by.sort_by_key(|(_, outcome)| std::cmp::Reverse(outcome.bytes));
    println!("most memory");
    by.iter().take(args.worst).copied().for_each(row);
    println!("not answered within {} s and {} MiB", args.seconds, args.mib);
    outcomes.iter().filter(|(_, outcome)| outcome.fault.is_some()).for_each(row);
    let refused = outcomes.values().filter(|outcome| outcome.code == Some(2)).count();
    println!("{} calls: {} answered, {refused} refused", outcomes.len(), outcomes.len() - refused);
}
