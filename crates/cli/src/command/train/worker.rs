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
use tonnage_core::record::PredictionRecord;
use tonnage_experiment::record::{Memory, Record};
use tonnage_torch::Device;
use tonnage_train::training::{Event, Held};

use super::engine::{self, failure, train_failure};
use super::job::TrainJob;
use super::metrics::Metrics;
use super::{EngineArgs, screen};
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
}

impl TrainerArgs {
    /// Trains.
    ///
    /// # Errors
    /// Those of data, model, PyTorch and disk.
    pub fn run(mut self, terminal: &Terminal) -> Result<Exit, Failure> {
        with_patient_threads()?;
        let stops = Signals::take()?;
        self.job.small_gpt = self.job_text.take().or(self.job.small_gpt);
        let mut job = TrainJob::read(&self.job)?;
        if let Some(steps) = self.phantom_steps {
            job.resolved.training.max_steps = Some(steps);
        }
        let (found, chosen) = self.engine.choose()?;
        let shim = engine::shim(&found, terminal)?;
        let torch = engine::load(&found, &shim, chosen.device)?;
        let output = self.phantom_steps.is_none().then(|| job.output());
        if let Some(output) = &output {
            std::fs::create_dir_all(output).map_err(|error| Failure::file(&output.display().to_string(), &error))?;
        }
        // Whatever is there is gone on with: `tonnage train` refused what nobody asked for.
        let program = job.program(output.clone(), true);
        let ready = program.prepare(1, 0).map_err(|error| train_failure(&error))?;
        for note in ready.notes() {
            terminal.say(note);
        }
        let on_gpu = chosen.device != Device::Cpu;
        let metrics = output.as_deref().map(|output| Metrics::new(output, on_gpu.then_some(1)));
        let mut teller = Teller {
            job: &job,
            metrics,
            version: torch.version(),
            predicted: predicted(),
            begun: false,
            is_silent: self.phantom_steps.is_some(),
        };
        let outcome =
            ready.train(torch, chosen.device, &tonnage_train::training::Alone, &|| stops.asked(), &mut |event| {
                teller.tell(&event, terminal)
            });
        let outcome = outcome.map_err(|error| train_failure(&error));
        let outcome = outcome?;
        leave_peaks(&outcome.held)?;
        if on_gpu {
            torch.synchronize(chosen.device).map_err(failure)?;
        }
        if stops.asked() {
            return Err(Failure {
                exit: Exit::No,
                ..Failure::input(format!("stopped after step {}, which is saved", outcome.step))
            });
        }
        terminal.print(&format!("trained {} steps in {:.1} s\n", outcome.step, outcome.seconds))?;
        Ok(Exit::Done)
    }
}

/// How OpenMP's threads wait for work. Unless told otherwise they spin, which on a machine that others use too costs most of its
/// processors. It is read when libtorch is loaded, so the process begins anew with it.
const WAITING: (&str, &str) = ("OMP_WAIT_POLICY", "PASSIVE");

fn with_patient_threads() -> Result<(), Failure> {
    if std::env::var_os(WAITING.0).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|error| Failure::file("tonnage", &error))?;
    let error = Command::new(program).args(std::env::args_os().skip(1)).env(WAITING.0, WAITING.1).exec();
    Err(Failure::file("tonnage", &error))
}

/// What the guard predicted of this attempt.
fn predicted() -> Option<PredictionRecord> {
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
    /// Over a phantom no number means anything.
    is_silent: bool,
}

impl Teller<'_> {
    fn tell(&mut self, event: &Event, terminal: &Terminal) {
        let line = || terminal.print(&(screen::line(event, self.predicted.as_ref()) + "\n"));
        let told = if self.is_silent { Ok(()) } else { line() };
        let written = told.and_then(|()| self.write(event));
        if let Err(failure) = written {
            // The training goes on without a curve; that it has none is said once.
            if self.metrics.take().is_some() {
                terminal.say(&format!("no metrics are written from here on: {}", failure.problem));
            }
        }
    }

    fn write(&mut self, event: &Event) -> Result<(), Failure> {
        if let Event::Measured(held) = event {
            leave_peaks(held)?;
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
                ..Memory::default()
            };
            metrics.write(&Record::Memory(memory))?;
        }
        metrics.add(event)
    }
}

/// The allocator's peaks, where the guard looks for them.
fn leave_peaks(held: &Held) -> Result<(), Failure> {
    let (Held::Gpu(memory), Some(folder)) = (held, std::env::var_os("TONNAGE_ATTEMPT_DIR")) else { return Ok(()) };
    let path = PathBuf::from(folder).join(format!("allocator-{}.json", std::process::id()));
    let peaks = json!({"peak_allocated_bytes": memory.peak_allocated, "peak_reserved_bytes": memory.peak_reserved});
    let part = path.with_extension("tmp");
    let written = std::fs::write(&part, peaks.to_string()).and_then(|()| std::fs::rename(&part, &path));
    written.map_err(|error| Failure::file(&path.display().to_string(), &error))
}

/// Ctrl-C and a polite end: the step that runs is finished and saved.
struct Signals {
    came: Arc<AtomicBool>,
}

impl Signals {
    /// Before any other thread is there, so that all have the signals blocked; one of its own waits for them.
    fn take() -> Result<Self, Failure> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.thread_block().map_err(|error| Failure::file("signals", &error.into()))?;
        let came = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&came);
        thread::spawn(move || {
            while set.wait().is_ok() {
                seen.store(true, Ordering::SeqCst);
            }
        });
        Ok(Self { came })
    }

    fn asked(&self) -> bool {
        self.came.load(Ordering::SeqCst)
    }
}
