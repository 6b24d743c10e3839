//! What comes of one call: how it ends, its processor time and the most memory it held, as `/proc` tells while it runs.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use super::jobs::Call;

/// Ticks a second of `/proc`'s times.
const TICKS: f64 = 100.0;
/// How often a running process is looked at.
const PAUSE: Duration = Duration::from_millis(4);
/// Codes with which a command says what it means to say.
const SAID: [i32; 4] = [0, 1, 2, 3];

/// What a call may take.
#[derive(Clone, Copy)]
pub struct Bounds {
    pub seconds: f64,
    pub bytes: u64,
}

/// What came of a call.
pub struct Outcome {
    pub code: Option<i32>,
    pub seconds: f64,
    pub bytes: u64,
    /// Why it is a fault; `None` where it was answered or refused within its bounds.
    pub fault: Option<String>,
}

/// Runs a call; one beyond its bounds is ended.
pub fn of(binary: &Path, call: &Call, bounds: Bounds) -> Result<Outcome> {
    let errors = call.folder.join(format!("errors-{:?}", std::thread::current().id()));
    let mut command = Command::new(binary);
    command.args(&call.words).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(fs::File::create(&errors)?).env("HOME", &call.folder).env("NO_COLOR", "1");
    let mut child = command.spawn().with_context(|| binary.display().to_string())?;
    let (mut seconds, mut bytes, mut beyond) = (0.0_f64, 0, None);
    let status = loop {
        let (now, high) = taken_by(&child);
        (seconds, bytes) = (seconds.max(now), high.max(bytes));
        if beyond.is_none() && (seconds > bounds.seconds || bytes > bounds.bytes) {
            beyond = Some(if bytes > bounds.bytes { "too much memory" } else { "too long" });
            child.kill()?;
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        sleep(PAUSE);
    };
    let told = String::from_utf8_lossy(&fs::read(&errors)?).into_owned();
    let fault = match (beyond, status.code()) {
        (Some(beyond), _) => Some(beyond.to_owned()),
        (None, None) => Some(format!("ended by a signal: {status}")),
        (None, Some(code)) if !SAID.contains(&code) || told.contains("panicked at") => {
            Some(format!("exit {code}: {}", told.lines().next().unwrap_or("")))
        }
        (None, Some(2)) if told.trim().is_empty() => Some("refused without a word".to_owned()),
        (None, Some(_)) if told.len() > MOST_TOLD => Some(format!("{} bytes of errors", told.len())),
        _ => None,
    };
    Ok(Outcome { code: status.code(), seconds, bytes, fault })
}

/// The most that an error may say: a value of any length is not repeated whole.
const MOST_TOLD: usize = 8 << 10;

/// Seconds of processor time so far, and the most bytes held so far.
fn taken_by(child: &Child) -> (f64, u64) {
    let read = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", child.id())).unwrap_or_default();
    let stat = read("stat");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    // User and system time, fields 14 and 15.
    let ticks: f64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    let status = read("status");
    let high = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = high.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0);
    (ticks / TICKS, kib << 10)
}
