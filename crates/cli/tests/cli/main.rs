//! The command line as users meet it: what it prints, where, and with which exit code.
//!
//! A screen is compared with a file in `expected`; `TONNAGE_BLESS=1 cargo test -p tonnage` writes those files anew.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod architectures;
mod checks;
mod completes;
mod docs;
mod doctor;
mod errors;
mod files;
mod fits;
mod hostile;
mod hub;
mod native;
mod plans;
mod refusals;
mod rehearsal;
mod report;
mod screens;
mod small_gpt;
mod suites;
mod torch;
mod unnamed;
mod walk;
mod watch;

use std::path::PathBuf;
use std::process::{Command, Output};

pub use support::torch_python;

/// Runs `tonnage` beside the test data, in a terminal of 80 columns without colours.
pub fn tonnage(args: &[&str]) -> Output {
    command(args).output().expect("the binary runs")
}

/// The command, not yet run.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tonnage"));
    command.args(args).current_dir(folder("data")).env_clear();
    command.env("COLUMNS", "80").env("LC_ALL", "C.UTF-8").env("TERM", "xterm");
    command
}

/// The JSON that a successful command prints.
pub fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_slice(&tonnage(args).stdout).expect("stdout is JSON")
}

/// Compares exit code, stdout and stderr with the file called `name`.
pub fn check(name: &str, args: &[&str]) {
    let output = tonnage(args);
    let part = |title: &str, bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        if text.is_empty() { String::new() } else { format!("--- {title}\n{text}") }
    };
    let code = output.status.code().expect("an exit code");
    let typed = args.join(" ");
    let found =
        format!("$ tonnage {typed}\nexit {code}\n{}{}", part("stdout", &output.stdout), part("stderr", &output.stderr));
    let path = folder("expected").join(format!("{name}.txt"));
    support::check_snapshot(&path, &found);
}

/// A folder of the tests.
pub fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}
