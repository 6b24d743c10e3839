//! `tonnage supervise`: supervises a run whose folder is there; what `run` does itself, or starts with `--detach`.

use std::path::PathBuf;

use clap::Args;
use tonnage_core::job::{JobSpec, Spreading};
use tonnage_core::record::{CorrectionRecord, Outcome, Policy, ResultRecord};
use tonnage_run::corrections;
use tonnage_run::guard::{GpuNow, Guard, Job, Room};
use tonnage_run::secrets::Secrets;
use tonnage_run::store::{RunFolder, Store};
use tonnage_run::supervise::{SuperviseContext, supervise_run};
use tonnage_watch::nvml::Library;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::job_input::recorded_source;
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
        // Who started it tells the secrets that the record does not hold; a person who did has none to tell.
        let told = std::io::read_to_string(std::io::stdin()).unwrap_or_default();
        let secrets = Secrets(serde_json::from_str(&told).unwrap_or_default());
        let result = supervise_here(&folder, secrets, false, terminal)?;
        Ok(exit_of(&result))
    }
}

/// Supervises a run in this process.
///
/// # Errors
/// When its job can no longer be resolved, or it cannot be supervised.
pub fn supervise_here(
    folder: &RunFolder,
    secrets: Secrets,
    on_screen: bool,
    terminal: &Terminal,
) -> Result<ResultRecord, Failure> {
    let run = folder.run();
    // Checkpoints, configs and the command are where the run was made, wherever it is taken up.
    std::env::set_current_dir(&run.folder).map_err(|error| Failure::about_file(&run.folder, &error))?;
    let source = run.job.as_ref().map(recorded_source).transpose()?;
    let spec = source.as_ref().map(|source| source.resolve(&[])).transpose()?.map(|resolved| resolved.job);
    let usable_bytes = run.policy.capacity_bytes.or(spec.as_ref().map(|spec| spec.gpu.usable_bytes)).unwrap_or(0);
    let store = Store::of_user();
    let kept = run.job.as_ref().map(|job| corrections::kept_correction(store.root(), job)).transpose()?.flatten();
    let kept = kept.unwrap_or_default();
    let seen = spec.as_ref().map(|spec| (kept.on_a_gpu(spec), kept.less_bytes(spec))).unwrap_or_default();
    let (correction, less_bytes) = with_peaks_of_a_suite(seen, &run.policy);
    let library = watch_library();
    if let Some(note) = spec.as_ref().zip(library.as_ref()).and_then(|(spec, library)| several_gpus(spec, library)) {
        terminal.say(&note);
    }
    let look = || library.as_ref().and_then(|library| read_gpu(library, usable_bytes));
    let guard = Guard {
        command: &run.command,
        policy: &run.policy,
        job: spec.zip(source.as_ref()).map(|(spec, source)| Job { spec, source }),
        room: Room { usable_bytes, correction, less_bytes, ..Room::default() },
        look: &look,
        made_before: 0,
    };
    let report = |text: &str| terminal.say(text);
    let context = SuperviseContext { root: store.root(), secrets, on_screen, report: &report };
    Ok(supervise_run(folder, guard, context)?)
}

/// What probes saw of the job, and what earlier runs of its suite were measured to take.
fn with_peaks_of_a_suite(
    (correction, less_bytes): (CorrectionRecord, u64),
    policy: &Policy,
) -> (CorrectionRecord, u64) {
    if policy.seen_more_bytes > correction.offset_bytes {
        let evidence = "earlier runs of the suite were measured to take more than was predicted".to_owned();
        return (CorrectionRecord { offset_bytes: policy.seen_more_bytes, evidence, ..correction }, 0);
    }
    let less = if correction.offset_bytes > 0 { 0 } else { less_bytes.max(policy.seen_less_bytes) };
    (correction, less)
}

/// Parts of a hundred by which the GPU of a job may differ from the machine's and be the same: what a driver keeps for
/// itself differs more than between two GPUs of the catalog.
const SAME_GPU_PERCENT: u64 = 10;

/// NVML, where there is one.
pub fn watch_library() -> Option<Library> {
    let path = std::env::var_os(super::watch::LIBRARY).map(PathBuf::from);
    Library::open(path.as_deref()).ok()
}

/// What one process does that sees several GPUs, where the job speaks of one.
fn several_gpus(spec: &JobSpec, library: &Library) -> Option<String> {
    let count = library.count().ok().filter(|count| *count > 1)?;
    let is_one = spec.parallel.world_size <= 1 && !matches!(spec.task.facts().spreading(), Spreading::Nodes { .. });
    (is_one && std::env::var_os("CUDA_VISIBLE_DEVICES").is_none()).then(|| {
        format!(
            "the job is of one rank and {count} GPUs are visible: Hugging Face's Trainer would take all of them and \
             multiply the batch; CUDA_VISIBLE_DEVICES=0 keeps it to one"
        )
    })
}

/// The machine's fullest visible GPU, where NVML tells of it and it is the GPU that the job names.
fn read_gpu(library: &Library, usable_bytes: u64) -> Option<GpuNow> {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let indices: Vec<u32> = visible.split(',').filter_map(|index| index.trim().parse().ok()).collect();
    let is_visible = |index: &u32| visible.is_empty() || indices.contains(index);
    let devices = (0..library.count().unwrap_or(0)).filter(is_visible).filter_map(|index| library.device(index).ok());
    let memories = devices.filter_map(|device| library.memory(device).ok());
    let same = memories.filter(|memory| memory.total.abs_diff(usable_bytes) <= usable_bytes / 100 * SAME_GPU_PERCENT);
    let fullest = same.max_by_key(|memory| memory.used)?;
    Some(GpuNow { total_bytes: fullest.total, used_bytes: fullest.used })
}

/// What scripts are told of a result.
pub const fn exit_of(result: &ResultRecord) -> Exit {
    match result.outcome {
        Outcome::Succeeded => Exit::Done,
        Outcome::Failed | Outcome::Stopped | Outcome::Refused => Exit::No,
    }
}
