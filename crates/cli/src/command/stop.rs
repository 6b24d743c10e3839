//! `tonnage stop`: asks a run to end.

use std::time::{Duration, Instant};

use clap::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tonnage_run::store::{RunFolder, Store};
use tonnage_run::supervise::end_left_behind;

use super::list::run_line;
use super::status::show_run;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// How long a supervisor may take beside the grace that it gives.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Asks a run to end, and waits until it has
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tonnage stop\n  tonnage stop last --now\n\nWhere nothing runs, it says so, and the exit code is 1."
)]
pub struct StopArgs {
    /// The run: its id, a part of it that no other has, or `last`, the newest that lives
    #[arg(default_value = "last")]
    run: String,

    /// Ends its processes without waiting for them to save anything, and a supervisor that does not answer
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
        let folder = Store::of_user().find_living(&self.run)?;
        let supervisor = folder.state().supervisor.filter(|_| folder.is_supervised());
        match supervisor {
            Some(supervisor) => self.ask_supervisor(&folder, Pid::from_raw(supervisor.cast_signed()), terminal),
            None if folder.left_behind().is_empty() => {
                let state = run_line(&folder).state;
                terminal.say(&format!("nothing was stopped: run {} does not run ({state})", folder.id()));
                self.tell_ended(&folder, terminal).map(|_| Exit::No)
            }
            None => self.end_left_behind(&folder, terminal),
        }
    }

    /// Asks the supervisor, and waits for it.
    fn ask_supervisor(&self, folder: &RunFolder, supervisor: Pid, terminal: &Terminal) -> Result<Exit, Failure> {
        for _ in 0..=usize::from(self.now) {
            kill(supervisor, Signal::SIGTERM)
                .map_err(|error| Failure::bad_input(format!("process {supervisor}: {error}")))?;
            std::thread::sleep(Duration::from_millis(50));
        }
        // One that was stopped (Ctrl-Z, SIGSTOP) hears it when it goes on.
        let _ = kill(supervisor, Signal::SIGCONT);
        let grace = if self.now { 0 } else { folder.run().policy.grace_seconds };
        if wait_until(TIMEOUT + Duration::from_secs(grace), || !folder.is_supervised()) {
            terminal.say(&format!("run {} has ended", folder.id()));
            return self.tell_ended(folder, terminal);
        }
        if !self.now {
            let problem = format!("run {} has not ended yet", folder.id());
            let hint = Some("`tonnage stop --now` ends it and its supervisor".to_owned());
            return Err(Failure { problem, hint, exit: Exit::No, of_job: None });
        }
        terminal.say(&format!("supervisor {supervisor} does not answer: it is ended too"));
        // One that has just gone is what is wanted.
        let _ = kill(supervisor, Signal::SIGKILL);
        wait_until(TIMEOUT, || !folder.is_supervised());
        self.end_left_behind(folder, terminal)
    }

    /// Ends the processes that a supervisor left when it died.
    fn end_left_behind(&self, folder: &RunFolder, terminal: &Terminal) -> Result<Exit, Failure> {
        let grace = if self.now { 0 } else { folder.run().policy.grace_seconds };
        let Some((pids, all_gone)) = end_left_behind(folder, Duration::from_secs(grace))? else {
            let problem = format!("run {} was taken up by another supervisor meanwhile", folder.id());
            return Err(Failure {
                problem,
                hint: Some("`tonnage stop` asks that one".to_owned()),
                exit: Exit::No,
                of_job: None,
            });
        };
        let (id, count) = (folder.id(), pids.len());
        let what = if count == 1 { "process".to_owned() } else { format!("{count} processes") };
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        if !all_gone {
            let problem = format!("of run {id}, not all processes could be ended: {}", pids.join(", "));
            return Err(Failure {
                problem,
                hint: Some("ps -o pid,stat,wchan -p PID says why".to_owned()),
                exit: Exit::No,
                of_job: None,
            });
        }
        terminal.say(&format!(
            "run {id} had lost its supervisor; its {what} {} ended",
            if count == 1 { "has" } else { "have" }
        ));
        self.tell_ended(folder, terminal)
    }

    fn tell_ended(&self, folder: &RunFolder, terminal: &Terminal) -> Result<Exit, Failure> {
        if self.json { show_run(folder, false, true, terminal) } else { Ok(Exit::Done) }
    }
}

/// Whether `is_so` became true within `limit`.
fn wait_until(limit: Duration, is_so: impl Fn() -> bool) -> bool {
    let until = Instant::now() + limit;
    while !is_so() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}
