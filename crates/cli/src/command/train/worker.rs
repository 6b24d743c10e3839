//! `tonnage trainer`: the process that trains, started by `tonnage train` under guard, or by `torchrun --no-python`.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::Args;
use nix::sys::signal::{SigSet, Signal};
use serde_json::json;
use tonnage_core::job::Strategy;
use tonnage_core::record::PredictionRecord;
use tonnage_experiment::record::{Memory, Record};
use tonnage_torch::Device;
use tonnage_train::grpo::swarm::Place as SwarmPlace;
use tonnage_train::ranks::{Alone, Joined, Place};
use tonnage_train::training::{Event, Held, Outcome};
use tonnage_train::{Prepared, TrainError};

use super::engine::{self, torch_failure, train_failure};
use super::job::TrainJob;
use super::memory;
use super::metrics::Metrics;
use super::ranks::THREADS;
use super::recorder::{self, Recorder};
use super::swarm::node_folder;
use super::{EngineArgs, ranks, rehearsal, screen};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::job_args::JobArgs;
use crate::terminal::Terminal;

/// Trains; what `tonnage train` starts
#[derive(Args)]
pub struct TrainerArgs {
    #[command(flatten)]
    job: JobArgs,

    #[command(flatten)]
    engine: EngineArgs,

    /// The text of a job file
    #[arg(long)]
    job_text: Option<String>,

    /// Makes so many steps, reads no number and keeps nothing
    #[arg(long, value_name = "STEPS")]
    phantom_steps: Option<u64>,

    /// Which node of a swarm it is, from 0
    #[arg(long, value_name = "N")]
    node: Option<u64>,

    /// Takes part under a name that is free
    #[arg(long, requires = "node")]
    join: bool,

    /// Threads that it computes in
    #[arg(long, value_name = "N")]
    threads: Option<u64>,

    /// Rehearses it in place of training, and prints the peaks as JSON
    #[arg(long)]
    rehearsal: bool,
}

impl TrainerArgs {
    /// Trains.
    ///
    /// # Errors
    /// Those of data, model, PyTorch and disk.
    pub fn run(mut self, terminal: &Terminal) -> Result<Exit, Failure> {
        with_patient_threads(self.threads)?;
        let stops = Signals::take_signals()?;
        let place = ranks::place_of_rank()?;
        self.job.small_gpt = self.job_text.take().or(self.job.small_gpt);
        let mut job = TrainJob::read_job(&self.job, place.as_ref().map(|place| place.ranks))?;
        if let Some(steps) = self.phantom_steps {
            job.resolved.training.max_steps = Some(steps);
        }
        if self.rehearsal {
            let (found, _) = self.engine.choose(job.resolved.training.use_cpu)?;
            return rehearsal::rehearse_training(&job, &found, true, terminal);
        }
        let parallel = job.resolved.job.parallel;
        let swarm = self.node.map(|index| SwarmPlace { index, joins: self.join });
        let keeps_nothing = self.phantom_steps.is_some() || recorder::rehearsal_folder().is_some();
        if !keeps_nothing && place.as_ref().is_none_or(|place| place.rank == 0) {
            ranks::check_resumed(&job.output_folder(), parallel.world_size.max(1))?;
        }
        if place.is_none() && matches!(parallel.strategy, Strategy::Ddp(_) | Strategy::AllReduce) {
            return ranks::launch_ranks(parallel.world_size, &stops);
        }
        Rank { job, place, engine: self.engine, is_phantom: keeps_nothing, swarm }.train(&stops, terminal)
    }
}

/// The process that trains: the only one, or one of several.
pub struct Rank {
    pub job: TrainJob,
    /// Which of several.
    pub place: Option<Place>,
    /// Over which PyTorch.
    pub engine: EngineArgs,
    /// Whether no number means anything and nothing is kept.
    pub is_phantom: bool,
    /// Which node of a swarm.
    pub swarm: Option<SwarmPlace>,
}

impl Rank {
    /// Trains.
    ///
    /// # Errors
    /// Those of data, model, PyTorch, disk, and of other ranks.
    pub fn train(self, stops: &Signals, terminal: &Terminal) -> Result<Exit, Failure> {
        let Self { job, place, engine: chooser, is_phantom, swarm } = self;
        ranks::end_with_launcher()?;
        let (found, chosen) = chooser.choose(job.resolved.training.use_cpu)?;
        let shim = engine::build_shim(&found, terminal)?;
        let torch = engine::load_torch(&found, &shim, chosen.device)?;
        let device = match &place {
            Some(place) => ranks::device_of(chosen.device, place, torch.cuda_devices().map_err(torch_failure)?)?,
            None => chosen.device,
        };
        let recorder = (device != Device::Cpu).then(|| Recorder::begin(torch, device)).transpose()?.flatten();
        let output = (!is_phantom).then(|| output_of(&job, swarm.as_ref()));
        if let Some(output) = &output {
            std::fs::create_dir_all(output)
                .map_err(|error| Failure::about_file(&output.display().to_string(), &error))?;
        }
        // Whatever is there is gone on with: `tonnage train` refused what nobody asked for.
        let mut program = job.make_program(output.clone(), true);
        program.swarm = swarm.clone().unwrap_or_default();
        let (count, rank) = place.as_ref().map_or((1, 0), |place| (place.ranks, place.rank));
        let ready = Prepared::new(&program, count, rank).map_err(|error| train_failure(&error))?;
        let (is_first, on_gpu) = (rank == 0, device != Device::Cpu);
        ready.notes().iter().filter(|_| is_first).for_each(|note| terminal.say(note));
        let (gpus, node) = (on_gpu.then_some(count), swarm.map(|node| node.index));
        let first_output = output.as_deref().filter(|_| is_first);
        let metrics = first_output.map(|output| Metrics::new(output, gpus).of_node(node));
        let mut teller = Teller {
            job: &job,
            metrics,
            version: torch.version(),
            predicted: read_prediction(),
            begun: false,
            rank,
            is_silent: is_phantom || !is_first,
        };
        let mut observe = |event: Event| teller.tell_event(&event, terminal);
        let stopped = || recorder.as_ref().is_some_and(Recorder::has_seen_enough) || stops.was_asked();
        let left = |trained: Result<Outcome, TrainError>| match &recorder {
            Some(recorder) => recorder.leave(trained.as_ref(), place.as_ref()).map(|()| trained),
            None => Ok(trained),
        };
        let outcome = match &place {
            None => left(ready.train(torch, device, &Alone, &stopped, &mut observe))?
                .map_err(|error| train_failure(&error))?,
            Some(place) => {
                let library = shim.ranks(&found, &mut |text| terminal.say(text)).map_err(torch_failure)?;
                let words = job.in_words() + &ready.about_data().map_err(|error| train_failure(&error))?;
                let joined = Joined::join_ranks(&library, place.clone(), device, &words)
                    .map_err(|error| train_failure(&error))?;
                left(ready.train(torch, device, &joined, &stopped, &mut observe))?
                    .map_err(|error| of_rank(&error, &joined))?
            }
        };
        leave_peaks(&outcome.held, rank)?;
        if on_gpu {
            torch.synchronize(device).map_err(torch_failure)?;
        }
        let line = last_line(&outcome, recorder.as_ref(), is_phantom)?;
        if is_first { terminal.print(&line).map(|()| Exit::Done) } else { Ok(Exit::Done) }
    }
}

/// The folder of checkpoints and metrics: of a node of a swarm, its own.
fn output_of(job: &TrainJob, swarm: Option<&SwarmPlace>) -> PathBuf {
    let output = job.output_folder();
    swarm.map_or_else(|| output.clone(), |node| node_folder(&output, node.index))
}

/// What is told at the end; an error where it was asked to stop, otherwise than by its recorder.
fn last_line(outcome: &Outcome, recorder: Option<&Recorder>, is_phantom: bool) -> Result<String, Failure> {
    if outcome.was_stopped && !recorder.is_some_and(Recorder::has_stopped) {
        let kept = if is_phantom { "and a rehearsal keeps nothing" } else { "which is saved" };
        let problem = format!("stopped after step {}, {kept}", outcome.step);
        return Err(Failure { exit: Exit::No, ..Failure::bad_input(problem) });
    }
    let done = if is_phantom { "rehearsed" } else { "trained" };
    Ok(format!("{done} {} steps in {:.1} s\n", outcome.step, outcome.seconds))
}

/// A rank's error. One that was fine until another had gone says so by its code: whoever started it looks for the other's failure.
fn of_rank(error: &TrainError, joined: &Joined) -> Failure {
    let failure = train_failure(error);
    if joined.has_lost_a_rank() { Failure { exit: Exit::Command(ranks::LOST_ANOTHER), ..failure } } else { failure }
}

/// How OpenMP's threads wait for work. Unless told otherwise they spin, which on a machine that others use too costs most of its
/// processors. It is read when libtorch is loaded, so the process begins anew with it.
const WAITING: (&str, &str) = ("OMP_WAIT_POLICY", "PASSIVE");

/// Begins anew where it must; with so many threads where nobody said otherwise.
///
/// # Errors
/// When this program's own place is not known.
pub fn with_patient_threads(threads: Option<u64>) -> Result<(), Failure> {
    if std::env::var_os(WAITING.0).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|error| Failure::about_file("tonnage", &error))?;
    let mut again = Command::new(program);
    again.args(std::env::args_os().skip(1)).env(WAITING.0, WAITING.1);
    if let Some(threads) = threads.filter(|_| std::env::var_os(THREADS).is_none()) {
        again.env(THREADS, threads.to_string());
    }
    let error = again.exec();
    Err(Failure::about_file("tonnage", &error))
}

/// What the guard predicted of this attempt.
fn read_prediction() -> Option<PredictionRecord> {
    let folder = PathBuf::from(std::env::var_os("TONNAGE_ATTEMPT_DIR")?);
    let text = std::fs::read_to_string(folder.join("predicted.json")).ok()?;
    serde_json::from_str(&text).ok()
}

/// Tells what happens to whoever watches, and to the files.
struct Teller<'a> {
    job: &'a TrainJob,
    metrics: Option<Metrics>,
    version: &'a str,
    predicted: Option<PredictionRecord>,
    begun: bool,
    rank: u64,
    /// Over a phantom no number means anything, and one rank speaks for all.
    is_silent: bool,
}

impl Teller<'_> {
    fn tell_event(&mut self, event: &Event, terminal: &Terminal) {
        let line = || terminal.print(&(screen::event_line(event, self.predicted.as_ref()) + "\n"));
        let told = if self.is_silent { Ok(()) } else { line() };
        let written = told.and_then(|()| self.write_event(event));
        if let Err(failure) = written {
            // The training goes on without a curve; that it has none is said once.
            if self.metrics.take().is_some() {
                terminal.say(&format!("no metrics are written from here on: {}", failure.problem));
            }
        }
    }

    fn write_event(&mut self, event: &Event) -> Result<(), Failure> {
        if let Event::Measured(held) = event {
            leave_peaks(held, self.rank)?;
        }
        let Some(metrics) = &self.metrics else { return Ok(()) };
        if !self.begun {
            self.begun = true;
            let step = if let Event::Resumed { step, .. } = event { *step } else { 0 };
            let gpu = self.predicted.map(|_| self.job.resolved.job.gpu.name.clone());
            metrics.begin(self.job, self.version, gpu, step)?;
        }
        if let Event::Measured(Held::Gpu(memory)) = event {
            let memory = Memory {
                predicted_bytes: self.predicted.map(|predicted| predicted.peak_reserved_bytes),
                measured_bytes: Some(memory.peak_reserved),
                rehearsed_bytes: None,
            };
            metrics.write(&Record::Memory(memory))?;
        }
        metrics.add(event)
    }
}

/// The allocator's peaks, where the guard looks for them.
fn leave_peaks(held: &Held, rank: u64) -> Result<(), Failure> {
    let Some(folder) = std::env::var_os("TONNAGE_ATTEMPT_DIR").map(PathBuf::from) else { return Ok(()) };
    let (path, peaks) = match held {
        Held::Gpu(memory) => {
            let (allocated, reserved) = (memory.peak_allocated, memory.peak_reserved);
            (
                folder.join(format!("allocator-{}.json", std::process::id())),
                json!({"rank": rank, "peak_allocated_bytes": allocated, "peak_reserved_bytes": reserved}),
            )
        }
        // Of the first rank: the others hold as much.
        Held::Host(_) if rank > 0 => return Ok(()),
        Held::Host(bytes) => (folder.join(memory::HOST), json!(bytes)),
    };
    let part = path.with_extension("tmp");
    let written = std::fs::write(&part, peaks.to_string()).and_then(|()| std::fs::rename(&part, &path));
    written.map_err(|error| Failure::about_file(&path.display().to_string(), &error))
}

/// Ctrl-C and a polite end: the step that runs is finished and saved.
pub struct Signals {
    came: Arc<AtomicBool>,
}

impl Signals {
    /// Before any other thread is there, so that all have the signals blocked; one of its own waits for them.
    ///
    /// # Errors
    /// When the system blocks none.
    pub fn take_signals() -> Result<Self, Failure> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.thread_block().map_err(|error| Failure::about_file("signals", &error.into()))?;
        let came = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&came);
        thread::spawn(move || {
            while set.wait().is_ok() {
                seen.store(true, Ordering::SeqCst);
            }
        });
        Ok(Self { came })
    }

    /// Whether one came.
    pub fn was_asked(&self) -> bool {
        self.came.load(Ordering::SeqCst)
    }
}
