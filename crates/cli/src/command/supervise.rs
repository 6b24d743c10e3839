//! `tonnage supervise`: supervises a run whose folder is there; what `run` does itself, or starts with `--detach`.

use std::path::PathBuf;

use clap::Args;
use tonnage_core::record::{Outcome, ResultRecord};
use tonnage_core::spec::Override;
use tonnage_run::corrections;
use tonnage_run::guard::{Guard, Job, Room};
use tonnage_run::store::{RunFolder, Store};
use tonnage_run::supervise::supervise;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::job_input::JobInput;
use crate::terminal::Terminal;

/// Supervises a run in a session of its own
#[derive(Args)]
pub struct SuperviseArgs {
    /// The run's folder
    folder: PathBuf,
}

impl SuperviseArgs {
    /// Supervises it.
    ///
    /// # Errors
    /// When it cannot be read, or another supervisor has it.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        // A session of its own outlives the terminal; a process that leads one already needs none.
        let _ = nix::unistd::setsid();
        let folder = RunFolder::open(self.folder)?;
        let result = supervise_here(&folder, false, terminal)?;
        Ok(exit(&result))
    }
}

/// Supervises a run in this process.
///
/// # Errors
/// When its job can no longer be resolved, or it cannot be supervised.
pub fn supervise_here(folder: &RunFolder, on_screen: bool, terminal: &Terminal) -> Result<ResultRecord, Failure> {
    let run = folder.run();
    let input = run.job.as_ref().map(JobInput::of_record);
    let resolve = |changes: &[Override]| match &input {
        Some(input) => input.try_resolve(changes),
        None => Err(tonnage_core::spec::SpecError::new("no job was given")),
    };
    let spec = input.as_ref().map(|input| input.resolve(&[])).transpose()?.map(|resolved| resolved.job);
    let usable_bytes = run.policy.capacity_bytes.or(spec.as_ref().map(|spec| spec.gpu.usable_bytes)).unwrap_or(0);
    let store = Store::new(Store::default_root());
    let correction = run.job.as_ref().and_then(|job| corrections::kept(store.root(), job)).unwrap_or_default();
    let guard = Guard {
        command: &run.command,
        policy: &run.policy,
        job: spec.map(|spec| Job { spec, resolve: &resolve }),
        room: Room { usable_bytes, correction, ..Room::default() },
        made_before: 0,
    };
    Ok(supervise(folder, store.root(), guard, on_screen, &|text| terminal.say(text))?)
}

/// What scripts are told of a result.
pub const fn exit(result: &ResultRecord) -> Exit {
    match result.outcome {
        Outcome::Succeeded => Exit::Done,
        Outcome::Failed | Outcome::Stopped | Outcome::Refused => Exit::No,
    }
}
