//! `tonnage run` with commands that behave badly: they hang, ignore signals, leave grandchildren, write without end.

#[path = "../support/mod.rs"]
mod support;

mod ends;
mod grpo;
mod guarded;
mod homes;
mod hrm;
mod kills;
mod living;
mod pages;
mod probes;
mod records;
mod sapo;
mod sapo_machines;
mod slurm;
mod stopped;
mod suite_export;
mod suite_faults;
mod suite_packing;
mod suite_torch;
mod suite_words;
mod suites;
mod swarm;
mod torch;
mod train;
mod train_engine;
mod train_models;
mod train_ranks;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
pub use support::torch_python;

/// A place for a test's runs, empty.
pub struct Home {
    folder: PathBuf,
}

impl Home {
    /// A folder called `name`, empty.
    pub fn new(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{name}"));
        // What an earlier run of the test left.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self { folder }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file into it, and tells its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// `tonnage` with this home, not yet run.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tonnage"));
        command.args(args).current_dir(&self.folder).env("TONNAGE_HOME", self.path("home"));
        command.env("COLUMNS", "80").env("LC_ALL", "C.UTF-8").env_remove("CUDA_VISIBLE_DEVICES");
        command.stdin(Stdio::null());
        command
    }

    /// Runs `tonnage` to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the binary runs")
    }

    /// The last run as JSON.
    pub fn last(&self) -> Value {
        serde_json::from_slice(&self.run(&["show", "last", "--json"]).stdout).expect("a run is shown as JSON")
    }

    /// Waits until the last run is as `wanted`.
    pub fn wait(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.wait_for(30, what, wanted)
    }

    /// The same, for so many seconds: real PyTorch takes its time to be imported.
    pub fn wait_for(&self, seconds: u64, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + Duration::from_secs(seconds);
        loop {
            let output = self.run(&["show", "last", "--json"]);
            if let Some(run) = serde_json::from_slice(&output.stdout).ok().filter(|run| wanted(run)) {
                return run;
            }
            assert!(Instant::now() < until, "{what}: {}", String::from_utf8_lossy(&output.stdout));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Processes whose command line holds `marker`; each test has one of its own.
pub fn processes(marker: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(marker)
    };
    pids.filter(has).collect()
}

/// Waits until no process has `marker`.
pub fn wait_gone(marker: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    while !processes(marker).is_empty() {
        assert!(Instant::now() < until, "left behind: {:?}", processes(marker));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An out-of-memory message of PyTorch 2.5 and later.
pub const OOM: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total \
                       capacity of 8.00 GiB of which 1.00 GiB is free. Of the allocated memory 6.50 GiB is allocated \
                       by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.";
