//! `tonnage supervise`: supervises a run whose folder is there; what `run` does itself, or starts with `--detach`.

use std::path::PathBuf;

use clap::Args;
use tonnage_core::record::{Outcome, ResultRecord};
use tonnage_core::spec::Override;
use tonnage_run::corrections;
use tonnage_run::guard::{Guard, Job, Room};
use tonnage_run::store::{RunFolder, Store};
use tonnage_run::supervise::supervise;
use tonnage_watch::nvml::Library;

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
        room: Room { usable_bytes, used_bytes: used_now(usable_bytes), correction, ..Room::default() },
        made_before: 0,
    };
    Ok(supervise(folder, store.root(), guard, on_screen, &|text| terminal.say(text))?)
}

/// Parts of a hundred by which the GPU of a job may differ from the machine's and be the same: what a driver keeps for
/// itself differs more than between two GPUs of the catalog.
const SAME_GPU_PERCENT: u64 = 10;

/// Bytes in use on the machine's fullest visible GPU, where NVML tells them and it is the GPU that the job names.
fn used_now(usable_bytes: u64) -> u64 {
    let Ok(library) = Library::open(None) else { return 0 };
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let indices: Vec<u32> = visible.split(',').filter_map(|index| index.trim().parse().ok()).collect();
    let is_visible = |index: &u32| visible.is_empty() || indices.contains(index);
    let devices = (0..library.count().unwrap_or(0)).filter(is_visible).filter_map(|index| library.device(index).ok());
    let memories = devices.filter_map(|device| library.memory(device).ok());
    let same = memories.filter(|memory| memory.total.abs_diff(usable_bytes) <= usable_bytes / 100 * SAME_GPU_PERCENT);
    same.map(|memory| memory.used).max().unwrap_or(0)
}

/// What scripts are told of a result.
pub const fn exit(result: &ResultRecord) -> Exit {
    match result.outcome {
        Outcome::Succeeded => Exit::Done,
        Outcome::Failed | Outcome::Stopped | Outcome::Refused => Exit::No,
    }
}
