//! `tonnage train`: a job is estimated, held against the machine, trained by a child process under guard, and measured.

mod check;
pub mod engine;
mod job;
mod memory;
mod metrics;
mod output;
mod ranks;
mod recorder;
mod rehearsal;
mod screen;
mod swarm;
mod worker;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tonnage_core::job::{Strategy, keys};
use tonnage_core::record::{JobRecord, MemoryRecord, Policy, ResultRecord};
use tonnage_core::units::Bytes;
use tonnage_report::text;
use tonnage_run::clock::now_ms;
use tonnage_run::os;
use tonnage_run::request::{RunTable, run_record};
use tonnage_run::store::Store;
use tonnage_torch::{Device, Found};
use tonnage_train::ranks::Place;

use super::supervise::{exit_of, supervise_here, watch_library};
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::job_args::{self, JobArgs};
use crate::job_input::on_a_gpu;
use crate::terminal::Terminal;

use job::TrainJob;
use memory::Beside;
use metrics::Ended;
use swarm::{Begin, Swarm};
pub use worker::TrainerArgs;

const EXAMPLES: &str = "Examples:
  tonnage train examples/lilwill-cpu.toml
  tonnage train examples/lilwill-cpu.toml --resume          # goes on with the newest checkpoint
  tonnage train examples/grpo-arithmetic.toml               # GRPO with a verifier, on two processor cores
  tonnage train examples/sapo-arithmetic.toml               # a swarm: nodes that share rollouts through a folder
  tonnage train examples/sapo-arithmetic.toml --join        # one more node of it, from another terminal
  tonnage train examples/hrm-sudoku.toml                    # the hierarchical reasoning model on Sudokus of 6 x 6
  tonnage train job.toml --learning-rate 3e-4 --max-steps 200 --output-dir runs/second
  tonnage train job.toml --ranks 2                          # two processes: two GPUs, or two halves of the processors
  torchrun --nproc-per-node 2 --no-python tonnage train job.toml
  tonnage train job.toml --dry-run                          # estimate, data and PyTorch, without a step
  tonnage train job.toml --rehearse --gpu h100              # a few steps over a phantom GPU, predicted beside measured
  tonnage train --get-torch 2.11                            # fetches PyTorch for the CPU with pip, 0.5 GB";

const NOTES: &str = "The training is a plain PyTorch loop of this program's own over libtorch, which is found in this order: --torch, \
                     TONNAGE_TORCH, the active environment, python3, and what --get-torch fetched. docs/train.md tells more.";

/// Trains a language model: estimated first, guarded, resumable, measured
#[derive(Args)]
#[command(after_help = job_args::SHORT, after_long_help = format!("{EXAMPLES}\n\n{NOTES}\n\n{}", exit::TRAIN))]
pub struct TrainArgs {
    #[command(flatten)]
    job: JobArgs,

    #[command(flatten)]
    engine: EngineArgs,

    /// Fetches PyTorch without its CUDA libraries with pip, and ends
    #[arg(long, value_name = "VERSION", num_args = 0..=1, default_missing_value = "", help_heading = "Train")]
    get_torch: Option<String>,

    /// Trains in N processes, each on rows of its own, with DistributedDataParallel: N GPUs, or this machine's processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Train")]
    ranks: Option<u64>,

    /// Takes part in a swarm that others have begun, under the name swarm.experiment in swarm.folder
    #[arg(long, conflicts_with_all = ["resume", "overwrite"], help_heading = "Train")]
    join: bool,

    /// Goes on with the newest checkpoint of the output folder
    #[arg(long, help_heading = "Train")]
    resume: bool,

    /// Removes the checkpoints and metrics of the output folder first
    #[arg(long, conflicts_with = "resume", help_heading = "Train")]
    overwrite: bool,

    /// Prints the estimate, looks at data and PyTorch, and makes no step
    #[arg(long, help_heading = "Train")]
    dry_run: bool,

    /// Makes a few steps over a phantom of the GPU and prints predicted beside rehearsed
    #[arg(long, conflicts_with_all = ["dry_run", "resume", "overwrite"], help_heading = "Train")]
    rehearse: bool,

    /// Starts although the job is predicted not to fit
    #[arg(long, help_heading = "Train")]
    force: bool,

    /// Never changes the batch
    #[arg(long, help_heading = "Train")]
    no_adjust: bool,

    /// Starts of the trainer, at most
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Train")]
    max_attempts: u32,

    /// Does not rehearse a few steps beside the training, for the record
    #[arg(long, help_heading = "Train")]
    no_rehearsal: bool,

    /// Prints what came of it as JSON, and nothing else on stdout
    #[arg(long, help_heading = "Train")]
    json: bool,
}

/// Which PyTorch, on which device.
#[derive(Args, Clone, Debug)]
pub struct EngineArgs {
    /// `auto`, `cpu`, `cuda`, `cuda:1`
    #[arg(long, value_name = "DEVICE", default_value = "auto", help_heading = "Engine")]
    pub device: String,

    /// The PyTorch to take: a folder `torch`, a virtual environment, its python, or an unpacked libtorch
    #[arg(long, value_name = "PATH", help_heading = "Engine")]
    pub torch: Option<PathBuf>,
}

impl EngineArgs {
    /// The libtorch, and the device with the reason for it.
    ///
    /// # Errors
    /// When there is none, or no such device.
    pub fn choose(&self, use_cpu: bool) -> Result<(Found, engine::Chosen), Failure> {
        let found = engine::find_torch(self.torch.as_deref())?;
        if use_cpu && self.device == "auto" {
            let why = format!("on the CPU, as `{}` says", keys::USE_CPU);
            return Ok((found, engine::Chosen { device: Device::Cpu, why }));
        }
        let chosen = engine::choose_device(&self.device, &found, visible_gpus())?;
        Ok((found, chosen))
    }
}

/// GPUs that NVML shows.
fn visible_gpus() -> u32 {
    watch_library().and_then(|library| library.count().ok()).unwrap_or(0)
}

impl TrainArgs {
    /// Trains.
    ///
    /// # Errors
    /// When the job is none that can be trained here, there is no PyTorch, or the output folder holds another training.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        if let Some(version) = &self.get_torch {
            return engine::fetch_torch(Some(version), terminal);
        }
        if let Some(place) = ranks::place_of_rank()?.filter(|_| !(self.dry_run || self.rehearse)) {
            return self.train_as_rank(place, terminal);
        }
        let job = TrainJob::read_job(&self.job, self.ranks)?;
        let program = job.make_program(self.resume.then(|| job.output_folder()), self.resume);
        let checked = check::check_training(&job, &program, !self.rehearse)?;
        let (found, chosen) = self.engine.choose(job.resolved.training.use_cpu)?;
        terminal.say(&engine::about_torch(&found));
        let shim = engine::build_shim(&found, terminal)?;
        if self.rehearse {
            return rehearsal::rehearse_training(&job, &found, self.json, terminal);
        }
        let is_spread = matches!(job.resolved.job.parallel.strategy, Strategy::Ddp(_));
        if is_spread {
            // Once, before all ranks wait for it.
            shim.ranks(&found, &mut |text| terminal.say(text)).map_err(engine::torch_failure)?;
        }
        drop(shim);
        terminal.say(&format!("{}; {}", checked, chosen.why));
        screen::print_estimate(&job, chosen.device, terminal)?;
        let is_rehearsed = recorder::rehearsal_folder().is_some();
        if is_rehearsed {
            rehearsal::check_device(&found, chosen.device)?;
        }
        let output = job.output_folder();
        if self.dry_run {
            terminal.say(&format!("nothing was started; checkpoints would go to {}", output.display()));
            return Ok(Exit::Done);
        }
        let swarm = if is_rehearsed { None } else { Swarm::prepare(&job, self.begin())? };
        if swarm.is_none() && !is_rehearsed {
            self.prepare_output(&job)?;
        }
        self.run_guarded(&job, swarm.as_ref(), &found, chosen.device, is_rehearsed, terminal)
    }

    const fn begin(&self) -> Begin {
        match (self.join, self.resume, self.overwrite) {
            (true, ..) => Begin::Joined,
            (_, true, _) => Begin::Resumed,
            (.., true) => Begin::Over,
            _ => Begin::Anew,
        }
    }

    /// Makes the output folder ready for this training.
    fn prepare_output(&self, job: &TrainJob) -> Result<(), Failure> {
        let output = job.output_folder();
        output::prepare_folder(&output, self.resume, self.overwrite)?;
        ranks::check_resumed(&output, job.resolved.job.parallel.world_size.max(1))
    }

    /// As one of the processes that torchrun has started, which guards them itself.
    fn train_as_rank(self, place: Place, terminal: &Terminal) -> Result<Exit, Failure> {
        worker::with_patient_threads(None)?;
        let signals = worker::Signals::take_signals()?;
        let job = TrainJob::read_job(&self.job, Some(place.ranks))?;
        let is_rehearsed = recorder::rehearsal_folder().is_some();
        if place.rank == 0 {
            let (found, chosen) = self.engine.choose(job.resolved.training.use_cpu)?;
            terminal.say(&format!("{}; rank 0 of {}, {}", engine::about_torch(&found), place.ranks, chosen.why));
            screen::print_estimate(&job, chosen.device, terminal)?;
            if !is_rehearsed {
                self.prepare_output(&job)?;
            }
        }
        worker::Rank { job, place: Some(place), engine: self.engine, is_phantom: is_rehearsed, swarm: None }
            .train(&signals, terminal)
    }

    /// A rehearsal is of the job as it is said, and only its first attempt has anything to tell.
    fn policy(&self, output: &Path, is_rehearsed: bool) -> Policy {
        Policy {
            max_attempts: if is_rehearsed { 1 } else { self.max_attempts },
            forced: self.force || is_rehearsed,
            adjusts: !(self.no_adjust || is_rehearsed),
            checkpoints: Some(output.display().to_string()),
            ..Policy::default()
        }
    }

    /// Under guard: the trainer is a child, whose end is seen whatever it is.
    fn run_guarded(
        &self,
        job: &TrainJob,
        swarm: Option<&Swarm>,
        found: &Found,
        device: Device,
        is_rehearsed: bool,
        terminal: &Terminal,
    ) -> Result<Exit, Failure> {
        os::check_supported()?;
        let output = swarm.map_or_else(|| job.output_folder(), |swarm| swarm.output.clone());
        let on_gpu = device != Device::Cpu;
        let source = on_a_gpu(job.source.clone(), "a training on a GPU is held against it");
        let resolved = if on_gpu { source.resolve(&[])? } else { job.resolved.clone() };
        // On the CPU there is no GPU's memory to hold the job against.
        let recorded = on_gpu.then(|| (JobRecord::new(&source, &resolved), &resolved.job));
        let mut command = job.trainer_command(found, device, &output, on_gpu && swarm.is_none())?;
        command.extend(swarm.map_or_else(Vec::new, Swarm::words));
        let table = RunTable::default();
        let here = std::env::current_dir().map_err(|error| Failure::about_file(".", &error))?;
        let policy = self.policy(&output, is_rehearsed);
        let (mut run, secrets) = run_record(command, here.display().to_string(), recorded, &table, policy)?;
        swarm.iter().for_each(|swarm| swarm.place_nodes(job, &mut run, on_gpu));
        let folder = Store::of_user().create(run)?;
        let kept = if is_rehearsed {
            "a rehearsal, which keeps nothing".to_owned()
        } else {
            format!("checkpoints and metrics in {}", output.display())
        };
        terminal.say(&format!("run {}, {kept}", folder.id()));
        let beside = (!(self.no_rehearsal || is_rehearsed) && found.has_cuda())
            .then(|| Beside::start(job, found, &output, &resolved.job.gpu));
        let result = supervise_here(&folder, secrets, !self.json, terminal)?;
        let memory = memory::memory_record(beside, &folder, &resolved.job.gpu, &result, terminal)?;
        // What lies in the output folder is of a training.
        let ended =
            if is_rehearsed { Ended::default() } else { record_ends(&output, swarm, &result, memory.as_ref())? };
        if self.json {
            terminal.print(&format!(
                "{:#}\n",
                json!({
                    "version": tonnage_report::VERSION,
                    "run": folder.id(),
                    (keys::OUTPUT_DIR): output.display().to_string(),
                    "outcome": result.outcome,
                    "reason": result.reason,
                    "last": ended.last,
                    "memory": ended.memory,
                })
            ))?;
        } else {
            let (run, mut state) = (folder.run(), folder.state());
            state.result = Some(result.clone());
            let line = tonnage_report::RunLine::new(run, &state, false, now_ms());
            terminal.tell(&text::run_screen(run, &state, &line, false, &terminal.look));
            ended.table_rows().into_iter().for_each(|row| terminal.tell(&row));
        }
        Ok(exit_of(&result))
    }
}

/// The end in the metrics of each process that trained, and what they came to together.
fn record_ends(
    output: &Path,
    swarm: Option<&Swarm>,
    result: &ResultRecord,
    memory: Option<&MemoryRecord>,
) -> Result<Ended, Failure> {
    let folders = swarm.map_or_else(|| vec![output.to_owned()], Swarm::folders);
    let ended = folders.iter().map(|folder| metrics::record_end(folder, result, memory));
    Ok(Ended::mean_of(ended.collect::<Result<_, _>>()?))
}

/// Bytes as people read them.
fn shown_bytes(bytes: u64) -> String {
    Bytes(bytes).to_string()
}
