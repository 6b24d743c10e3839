//! What a supervisor costs beside its job: start-up, processor, memory. `tonnage run`, guardian and keeper, read from `/proc`.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// The bars: milliseconds added to a start, share of a core, bytes.
const MOST_MS: f64 = 20.0;
const MOST_CORE: f64 = 0.002;
const MOST_BYTES: u64 = 20 << 20;
/// Ticks a second of `/proc`'s times.
const TICKS: f64 = 100.0;

/// Arguments of `supervisor`.
#[derive(clap::Args)]
pub struct Args {
    /// The binary (`cargo build --release` first).
    #[arg(long, default_value = "target/release/tonnage")]
    tonnage: PathBuf,
    /// Seconds that the job runs.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Starts to time.
    #[arg(long, default_value_t = 15)]
    starts: usize,
}

/// Measures and holds against the bars.
pub fn run(args: &Args) -> Result<()> {
    let home = std::env::temp_dir().join(format!("tonnage-supervisor-{}", std::process::id()));
    let alone = least_of(args.starts, || start_seconds(&mut Command::new("date")))?;
    let guarded = least_of(args.starts, || start_seconds(tonnage_command(args, &home).args(["--", "date"])))?;
    let (core, bytes) = beside_a_job(args, &home)?;
    fs::remove_dir_all(&home).context("the runs of this measurement")?;
    let added = guarded - alone;
    println!("start         {added:6.1} ms more than without (of {MOST_MS})");
    println!("processor     {:6.3} % of a core (of {})", core * 100.0, MOST_CORE * 100.0);
    println!("memory        {:6.1} MiB (of {})", bytes as f64 / (1 << 20) as f64, MOST_BYTES >> 20);
    ensure!(added < MOST_MS && core < MOST_CORE && bytes < MOST_BYTES, "a bar is not met");
    Ok(())
}

fn tonnage_command(args: &Args, home: &PathBuf) -> Command {
    let mut command = Command::new(&args.tonnage);
    command.arg("run").env("TONNAGE_HOME", home).stderr(Stdio::null());
    command
}

/// The least disturbed of several, in milliseconds: what else a machine does only adds.
fn least_of(times: usize, mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
    (0..times.max(1)).try_fold(f64::INFINITY, |least, _| Ok(least.min(measure()?)))
}

/// Milliseconds until the command says the time, in nanoseconds since 1970.
fn start_seconds(command: &mut Command) -> Result<f64> {
    let began = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
    let output = command.arg("+%s%N").output()?;
    let said: u128 = String::from_utf8(output.stdout)?.trim().parse().context("`date +%s%N` says no time")?;
    Ok(said.saturating_sub(began) as f64 / 1e6)
}

/// Share of a core and resident bytes of supervisor, guardian and keeper, beside a job that says a step a second.
fn beside_a_job(args: &Args, home: &PathBuf) -> Result<(f64, u64)> {
    let script = format!("for i in $(seq {}); do echo step $i/{}; sleep 1; done", args.seconds + 4, args.seconds);
    let mut run = tonnage_command(args, home).args(["--", "sh", "-c", &script]).stdout(Stdio::null()).spawn()?;
    // Its start is measured apart.
    sleep(Duration::from_secs(2));
    let pids = own_processes(&run);
    ensure!(pids.len() == 3, "supervisor, guardian and keeper are three processes: {pids:?}");
    let (before, began) = (cpu_ticks(&pids), Instant::now());
    sleep(Duration::from_secs(args.seconds));
    let used = cpu_ticks(&pids) - before;
    let bytes = pids.iter().filter_map(|pid| proportional_bytes(*pid)).sum();
    let core = used as f64 / TICKS / began.elapsed().as_secs_f64();
    run.wait()?;
    Ok((core, bytes))
}

/// The supervisor, its guardian and the guardian's keeper.
fn own_processes(run: &Child) -> Vec<u32> {
    let mut pids = vec![run.id()];
    for _ in 0..2 {
        let last = pids[pids.len() - 1];
        let children = fs::read_to_string(format!("/proc/{last}/task/{last}/children")).unwrap_or_default();
        pids.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    pids
}

/// What a process holds, pages that several share divided among them: the three run one program.
fn proportional_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

fn cpu_ticks(pids: &[u32]) -> u64 {
    let of = |pid: &u32| {
        Some(stat_fields(*pid)?.get(11..13)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum::<u64>())
    };
    pids.iter().filter_map(of).sum()
}

/// Fields of `/proc/PID/stat` after the name.
fn stat_fields(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.get(text.rfind(')')? + 1..)?.split_whitespace().map(str::to_owned).collect())
}
