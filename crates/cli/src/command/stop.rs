//! `tonnage stop`: asks a run to end.

use std::time::{Duration, Instant};

use clap::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tonnage_run::store::{RunFolder, Store};

use super::list::line;
use super::status::show;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Asks a run to end, and waits until it has
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tonnage stop\n  tonnage stop last --now\n\nWhere nothing runs, it says so, and the exit code is 1."
)]
pub struct StopArgs {
    /// The run: its id, a part of it that no other has, or `last`, the newest that lives
    #[arg(default_value = "last")]
    run: String,

    /// Ends its processes without waiting for them to save anything
    #[arg(long)]
    now: bool,

    /// Prints the run as JSON once it has ended
    #[arg(long)]
    json: bool,
}

impl StopArgs {
    /// Asks.
    ///
    /// # Errors
    /// When there is no such run, or it cannot be asked.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let folder = Store::new(Store::default_root()).find_living(&self.run)?;
        let supervisor = folder.state().supervisor.filter(|_| folder.is_supervised());
        let Some(supervisor) = supervisor else {
            let state = line(&folder).state;
            terminal.say(&format!("nothing was stopped: run {} does not run ({state})", folder.id()));
            return self.tell(&folder, terminal).map(|_| Exit::No);
        };
        let pid = Pid::from_raw(supervisor.cast_signed());
        for _ in 0..=usize::from(self.now) {
            kill(pid, Signal::SIGTERM).map_err(|error| Failure::input(format!("process {supervisor}: {error}")))?;
            std::thread::sleep(Duration::from_millis(50));
        }
        let grace = Duration::from_secs(folder.run().policy.grace_seconds + 10);
        let until = Instant::now() + grace;
        while folder.is_supervised() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        if folder.is_supervised() {
            return Err(Failure::input(format!("run {} has not ended yet", folder.id())).hint("`tonnage stop --now`"));
        }
        terminal.say(&format!("run {} has ended", folder.id()));
        self.tell(&folder, terminal)
    }

    fn tell(&self, folder: &RunFolder, terminal: &Terminal) -> Result<Exit, Failure> {
        if self.json { show(folder, false, true, terminal) } else { Ok(Exit::Done) }
    }
}
