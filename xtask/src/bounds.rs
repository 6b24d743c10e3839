//! Every reader at its limit: the worst files that are still read, and those just beyond, through the binary, with the
//! memory and the processor's time that each takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

mod files;

/// The bars: bytes resident at most, seconds of a processor: of a clock they would be the machine's load.
const MOST_BYTES: u64 = 500 << 20;
const MOST_SECONDS: f64 = 5.0;

/// The exit status that stands for a death by a signal.
const DIED: i32 = 101;

/// Arguments of `bounds`.
#[derive(clap::Args)]
pub struct Args {
    /// The binary (`cargo build --release` first, with the profile of the workspace).
    #[arg(long, default_value = "target/release/tonnage")]
    tonnage: PathBuf,
    /// Only the rows whose name holds this.
    #[arg(long, default_value = "")]
    only: String,
}

/// A file that is read, and the command that reads it: `{}` is the file, `{folder}` its folder.
struct Row {
    name: &'static str,
    make: fn(&Path) -> Result<PathBuf>,
    command: &'static [&'static str],
}

/// What one command took.
struct Taken {
    bytes: u64,
    seconds: f64,
    code: Option<i32>,
    said: String,
}

/// Measures every row, prints the table, and holds it against the bars.
pub fn run(args: &Args) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("tonnage-bounds-{}", std::process::id()));
    let rows = files::ROWS.iter().filter(|row| row.name.contains(&args.only));
    println!("{:<58} {:>9} {:>9} {:>6} {:>5}  last words", "reader", "file MiB", "peak MiB", "CPU s", "exit");
    let mut beyond = Vec::new();
    for row in rows {
        fs::create_dir_all(&folder).context("a temporary folder")?;
        let file = (row.make)(&folder).with_context(|| row.name)?;
        let size = file.metadata()?.len();
        let taken = measure_row(args, row, &file, &folder)?;
        let code = taken.code.unwrap_or(DIED);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (size, peak, seconds) = (mib(size), mib(taken.bytes), taken.seconds);
        println!("{:<58} {size:9.1} {peak:9.1} {seconds:6.2} {code:>5}  {}", row.name, taken.said);
        if taken.bytes > MOST_BYTES || taken.seconds > MOST_SECONDS || !(0..=2).contains(&code) {
            beyond.push(row.name);
        }
        fs::remove_dir_all(&folder)?;
    }
    ensure!(beyond.is_empty(), "beyond {} MiB, {MOST_SECONDS} s or an answer: {}", MOST_BYTES >> 20, beyond.join(", "));
    Ok(())
}

/// Runs a command under a process that tells what the kernel counted of its only child.
fn measure_row(args: &Args, row: &Row, file: &Path, folder: &Path) -> Result<Taken> {
    let filled = |word: &&str| match *word {
        "{}" => file.display().to_string(),
        word => word.replace("{folder}", &folder.display().to_string()),
    };
    let words: Vec<String> = row.command.iter().map(filled).collect();
    let peak = folder.join("peak");
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("measured").arg(&peak).arg(&args.tonnage).args(words);
    command.env("TONNAGE_HOME", folder.join("home")).stdin(Stdio::null());
    let output = command.output().context("the binary (`cargo build --release` first)")?;
    let counted = fs::read_to_string(&peak)?;
    let (bytes, seconds) = counted.split_once(' ').context("what the kernel counted")?;
    let (bytes, seconds) = (bytes.parse()?, seconds.parse()?);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = errors.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let said: String = said.replace(&folder.display().to_string(), "").chars().take(90).collect();
    Ok(Taken { bytes, seconds, code: output.status.code(), said })
}

/// Options of `measured`.
#[derive(clap::Args)]
pub struct Measured {
    /// The file that bytes and seconds are written to.
    peak: PathBuf,
    /// The command to measure.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<std::ffi::OsString>,
}

/// Runs the command and ends as it did; the kernel counts in KiB.
pub fn print_measured(args: &Measured) -> Result<()> {
    let (program, words) = args.command.split_first().context("a command")?;
    let status = Command::new(program).args(words).status()?;
    let used = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let seconds = seconds(used.user_time()) + seconds(used.system_time());
    fs::write(&args.peak, format!("{} {seconds}", used.max_rss() * 1024))?;
    std::process::exit(status.code().unwrap_or(DIED));
}
