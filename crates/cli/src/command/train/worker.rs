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
use tonnage_train::TrainError;
use tonnage_train::ranks::{Alone, Joined, Place};
use tonnage_train::training::{Event, Held};

use super::engine::{self, torch_failure, train_failure};
use super::job::TrainJob;
use super::memory;
use super::metrics::Metrics;
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
        with_patient_threads()?;
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
        if self.phantom_steps.is_none() && place.as_ref().is_none_or(|place| place.rank == 0) {
            ranks::check_resumed(&job.output_folder(), parallel.world_size.max(1))?;
        }
        if place.is_none() && matches!(parallel.strategy, Strategy::Ddp(_)) {
            return ranks::launch_ranks(parallel.world_size, &stops);
        }
        Rank { job, place, engine: self.engine, is_phantom: self.phantom_steps.is_some() }.train(&stops, terminal)
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
}

impl Rank {
    /// Trains.
    ///
    /// # Errors
    /// Those of data, model, PyTorch, disk, and of other ranks.
    pub fn train(self, stops: &Signals, terminal: &Terminal) -> Result<Exit, Failure> {
        let Self { job, place, engine: chooser, is_phantom } = self;
        ranks::end_with_launcher()?;
        let (found, chosen) = chooser.choose(job.resolved.training.use_cpu)?;
        let shim = engine::build_shim(&found, terminal)?;
        let torch = engine::load_torch(&found, &shim, chosen.device)?;
        let device = match &place {
            Some(place) => ranks::device_of(chosen.device, place, torch.cuda_devices().map_err(torch_failure)?)?,
            None => chosen.device,
        };
        let output = (!is_phantom).then(|| job.output_folder());
        if let Some(output) = &output {
            std::fs::create_dir_all(output)
                .map_err(|error| Failure::about_file(&output.display().to_string(), &error))?;
        }
        // Whatever is there is gone on with: `tonnage train` refused what nobody asked for.
        let program = job.make_program(output.clone(), true);
        let (count, rank) = place.as_ref().map_or((1, 0), |place| (place.ranks, place.rank));
        let ready = program.prepare_rank(count, rank).map_err(|error| train_failure(&error))?;
        let is_first = rank == 0;
        ready.notes().iter().filter(|_| is_first).for_each(|note| terminal.say(note));
        let on_gpu = device != Device::Cpu;
        let metrics =
            output.as_deref().filter(|_| is_first).map(|output| Metrics::new(output, on_gpu.then_some(count)));
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
        let stopped = || stops.was_asked();
        let outcome = match place {
            None => {
                ready.train(torch, device, &Alone, &stopped, &mut observe).map_err(|error| train_failure(&error))?
            }
            Some(place) => {
                let library = shim.ranks(&found, &mut |text| terminal.say(text)).map_err(torch_failure)?;
                let words = job.in_words() + &ready.about_data();
                let joined =
                    Joined::join_ranks(&library, place, device, &words).map_err(|error| train_failure(&error))?;
                let outcome = ready.train(torch, device, &joined, &stopped, &mut observe);
                outcome.map_err(|error| of_rank(&error, &joined))?
            }
        };
        leave_peaks(&outcome.held, rank)?;
        if on_gpu {
            torch.synchronize(device).map_err(torch_failure)?;
        }
        if outcome.was_stopped {
            return Err(stopped_after(outcome.step));
        }
        let line = format!("trained {} steps in {:.1} s\n", outcome.step, outcome.seconds);
        if is_first { terminal.print(&line).map(|()| Exit::Done) } else { Ok(Exit::Done) }
    }
}

fn stopped_after(step: u64) -> Failure {
    Failure { exit: Exit::No, ..Failure::bad_input(format!("stopped after step {step}, which is saved")) }
}

/// A rank's error. One that was fine until another had gone says so by its code: whoever started it looks for the other's failure.
fn of_rank(error: &TrainError, joined: &Joined) -> Failure {
    let failure = train_failure(error);
    if joined.has_lost_a_rank() { Failure { exit: Exit::Command(ranks::LOST_ANOTHER), ..failure } } else { failure }
}

/// How OpenMP's threads wait for work. Unless told otherwise they spin, which on a machine that others use too costs most of its
/// processors. It is read when libtorch is loaded, so the process begins anew with it.
const WAITING: (&str, &str) = ("OMP_WAIT_POLICY", "PASSIVE");

/// Begins anew where it must.
///
/// # Errors
/// When this program's own place is not known.
pub fn with_patient_threads() -> Result<(), Failure> {
    if std::env::var_os(WAITING.0).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|error| Failure::about_file("tonnage", &error))?;
    let error = Command::new(program).args(std::env::args_os().skip(1)).env(WAITING.0, WAITING.1).exec();
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
