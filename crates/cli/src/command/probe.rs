//! `tonnage probe`: a few steps of the real command, predicted beside seen; the difference is kept for later estimates.
//! Measured where there is a GPU, rehearsed over a phantom of it where there is none.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::Args;
use serde_json::json;
use tonnage_core::gpu::Gpu;
use tonnage_core::job::JobSpec;
use tonnage_core::plan::fit::verdict_on;
use tonnage_core::record::{Outcome, Policy, RunRecord};
use tonnage_core::units::Bytes;
use tonnage_run::adapter::{Injection, inject};
use tonnage_run::corrections::{self, Kept};
use tonnage_run::os;
use tonnage_run::private::TemporaryFolder;
use tonnage_run::rehearse::{Options, Rehearsed, rehearse_with};
use tonnage_run::secrets::Secrets;
use tonnage_run::store::Store;
use tonnage_run::supervise::python_module;

use super::rehearse::{nothing_seen, rehearse_failure};
use super::run::make_request;
use super::supervise::{supervise_here, watch_library};
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::job_args::{self, JobArgs};
use crate::job_input::recorded_source;
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage probe job.toml -- python train.py --per_device_train_batch_size 8
  tonnage probe job.toml --stop-after 5 -- torchrun --nproc-per-node 2 train.py
  tonnage probe job.toml --rehearse -- python train.py     # although there is a GPU";

const NOTES: &str = "The script should see its longest rows first: `tonnage_guard.longest_first(dataset)` puts them there \
                     in a probe, and only then. To be measured, it should log its steps.";

/// Two steps reach a step's peak with its optimizer state; the third shows that it stays.
const STEPS: u32 = 3;
/// A probe takes less than two minutes.
const SECONDS: u32 = 110;
/// So many times the GPU's memory has the phantom of a rehearsal, so that a job that does not fit shows its need.
const ROOMIER: u64 = 8;

/// Runs a few steps of a command and puts what its allocator took beside what was calculated
#[derive(Args)]
#[command(after_help = job_args::SHORT, after_long_help = format!("{EXAMPLES}\n\n{NOTES}\n\n{}", exit::RUN))]
pub struct ProbeArgs {
    #[command(flatten)]
    job: JobArgs,

    /// Steps after which the command is ended
    #[arg(long, value_name = "N", default_value_t = STEPS, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Probe")]
    stop_after: u32,

    /// Seconds between asking the command to end and ending it
    #[arg(long, value_name = "SECONDS", default_value_t = 20, help_heading = "Probe")]
    grace: u64,

    /// Rehearses, GPU or not [default: where NVML shows no GPU]
    #[arg(long, conflicts_with = "measure", help_heading = "Probe")]
    rehearse: bool,

    /// Measures, where NVML shows no GPU too
    #[arg(long, help_heading = "Probe")]
    measure: bool,

    /// Prints JSON, and nothing of what the command writes
    #[arg(long, help_heading = "Probe")]
    json: bool,

    /// The command, as of `tonnage run`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Peaks of a process: calculated and seen.
struct Seen {
    by: &'static str,
    calculated: (u64, u64),
    seen: (u64, u64),
    run: Option<String>,
}

impl ProbeArgs {
    /// Runs it.
    ///
    /// # Errors
    /// When there is no job or command, the command fails, or it told no peaks.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        os::check_supported()?;
        let policy = |policy: Policy| Policy {
            max_attempts: 1,
            forced: true,
            observes: true,
            stop_after_steps: Some(u64::from(self.stop_after)),
            max_run_seconds: Some(u64::from(SECONDS) - self.grace.min(60)),
            grace_seconds: self.grace,
            ..policy
        };
        let (run, secrets) = make_request(&self.job, &self.command, policy)?;
        let Some(job) = run.job.clone() else {
            return Err(
                Failure::bad_input("there is no job to compare with").with_hint("`tonnage probe JOB -- COMMAND`")
            );
        };
        let spec = recorded_source(&job)?.resolve(&[])?.job;
        let has_gpu = || watch_library().is_some_and(|library| library.count().is_ok_and(|count| count > 0));
        let rehearses = self.rehearse || !(self.measure || has_gpu());
        let seen = if rehearses {
            match self.probe_rehearsed(&run, &secrets, &spec)? {
                Ok(seen) => seen,
                Err(exit) => return Ok(exit),
            }
        } else {
            self.probe_here(run, secrets, terminal)?
        };
        let kept = Kept::new(seen.by, &spec, seen.calculated.1, seen.seen.1);
        corrections::keep_correction(Store::of_user().root(), &job, kept.clone())?;
        self.print_seen(&seen, &kept, terminal)
    }

    fn probe_here(&self, run: RunRecord, secrets: Secrets, terminal: &Terminal) -> Result<Seen, Failure> {
        let folder = Store::of_user().create(run)?;
        let result = supervise_here(&folder, secrets, !self.json, terminal)?;
        if result.outcome != Outcome::Succeeded {
            let hint = Some("`tonnage show` tells more".to_owned());
            return Err(Failure { problem: result.reason, hint, exit: Exit::No, of_job: None });
        }
        let state = folder.state();
        let attempt = state.nodes.iter().flat_map(|node| node.attempts.last()).next();
        let found = attempt.and_then(|attempt| Some((attempt.record.predicted?, attempt.measured?)));
        let Some((predicted, seen)) = found else {
            let failure = Failure::bad_input("the command told no peaks: is it Python with PyTorch on a GPU?");
            return Err(failure.with_hint("a process that is killed tells nothing; a longer --grace may help"));
        };
        let calculated = (predicted.peak_allocated_bytes, predicted.peak_reserved_bytes);
        Ok(Seen { by: "measured", calculated, seen, run: Some(folder.id().to_owned()) })
    }

    /// Over a phantom of the job's GPU; an exit where the command used none.
    fn probe_rehearsed(
        &self,
        run: &RunRecord,
        secrets: &Secrets,
        spec: &JobSpec,
    ) -> Result<Result<Seen, Exit>, Failure> {
        let verdict = verdict_on(spec, &spec.gpu)?;
        let told = TemporaryFolder::make().map_err(|error| Failure::about_file("a temporary folder", &error))?;
        let options = Options {
            command: probe_command(run, secrets, spec, told.path())?,
            gpu: Gpu { usable_bytes: spec.gpu.usable_bytes.saturating_mul(ROOMIER), ..spec.gpu.clone() },
            asked: vec![spec.gpu.clone()],
            gpus: u32::try_from(spec.parallel.world_size.max(1)).unwrap_or(1),
            steps: Some(self.stop_after),
            seconds: Some(SECONDS),
            steady: None,
            generate_length: None,
            patience: 60,
            worst_experts: false,
            longest: false,
            row_length: None,
            values: true,
            stdout_to_stderr: self.json,
        };
        let module = python_module(Store::of_user().root())?;
        let inherited = |name: &str| match (name, std::env::var_os(name)) {
            ("PYTHONPATH", Some(own)) => Some([OsString::from(&module), own].join(OsStr::new(":"))),
            ("PYTHONPATH", None) => Some(OsString::from(&module)),
            (_, own) => own,
        };
        let rehearsed = rehearse_with(&options, &inherited).and_then(Rehearsed::whole).map_err(rehearse_failure)?;
        let Some(fullest) = rehearsed.rehearsal.fullest() else {
            return nothing_seen(&rehearsed.rehearsal).map(Err);
        };
        let calculated = (verdict.peak_allocated_bytes, verdict.peak_reserved_bytes);
        let seen = (fullest.device.peak_allocated_bytes, fullest.device.peak_reserved_bytes);
        Ok(Ok(Seen { by: "rehearsed", calculated, seen, run: None }))
    }

    fn print_seen(&self, seen: &Seen, kept: &Kept, terminal: &Terminal) -> Result<Exit, Failure> {
        let peaks = |(allocated, reserved): (u64, u64)| json!({"peak_allocated_bytes": allocated, "peak_reserved_bytes": reserved});
        if self.json {
            let answer = json!({
                "version": tonnage_report::VERSION,
                "run": seen.run,
                "by": seen.by,
                "predicted": peaks(seen.calculated),
                seen.by: peaks(seen.seen),
                "correction_bytes": kept.correction.offset_bytes,
            });
            terminal.print(&format!("{answer:#}\n"))?;
            return Ok(Exit::Done);
        }
        let row = |name: &str, predicted: u64, seen: u64| {
            let difference = (seen as f64 / predicted.max(1) as f64 - 1.0) * 100.0;
            format!("  {name:<12}{:>12}{:>12}{difference:>+9.2} %\n", Bytes(predicted), Bytes(seen))
        };
        let head = format!("  {:<12}{:>12}{:>12}\n", "peak", "predicted", seen.by);
        let rows = row("allocated", seen.calculated.0, seen.seen.0) + &row("reserved", seen.calculated.1, seen.seen.1);
        terminal.print(&(head + &rows))?;
        Ok(Exit::Done)
    }
}

/// The command as its first attempt would be told, by files in `folder`, with its variables in front.
fn probe_command(run: &RunRecord, secrets: &Secrets, spec: &JobSpec, folder: &Path) -> Result<Vec<OsString>, Failure> {
    let injection = Injection {
        batch: Some(tonnage_core::record::BatchRecord::new(&tonnage_core::plan::batch::Batch::of(spec), spec)),
        node: run.nodes.first(),
        job: run.job.as_ref(),
        attempt: 1,
        folder: folder.to_owned(),
        ..Injection::default()
    };
    let told = inject(&run.command, &injection)?;
    let set = told.environment.iter().map(|(name, value)| format!("{name}={value}"));
    let mut words = vec!["env".to_owned(), "TONNAGE_PROBE=1".to_owned()];
    words.extend(set.filter(|set| !set.starts_with("CUDA_VISIBLE_DEVICES=")));
    for word in &told.argv {
        let word =
            secrets.reveal_in(word).map_err(|name| Failure::bad_input(format!("the secret {name} is not known")))?;
        words.push(word);
    }
    Ok(words.into_iter().map(OsString::from).collect())
}
