//! `tonnage run`: launches a command, keeps it alive, keeps its effective batch.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use tonnage_core::estimate::{Fit, shown_bound};
use tonnage_core::plan::fit::verdict_on;
use tonnage_core::record::{JobRecord, Policy, RunRecord};
use tonnage_core::units::Bytes;
use tonnage_report::{RunLine, run_json, text};
use tonnage_run::clock::now_ms;
use tonnage_run::request::{RunTable, cannot_start, run_record};
use tonnage_run::secrets::Secrets;
use tonnage_run::store::{RunFolder, Store};
use tonnage_run::{RunError, os};

use super::json;
use super::supervise::{exit_of, supervise_here};
use crate::exit::{self, Exit, FailOn};
use crate::failure::Failure;
use crate::job_args::{self, JobArgs};
use crate::job_input::{on_a_gpu, read_source, recorded_source, run_by};
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage run job.toml -- python train.py --batch {micro_batch_size} --accum {gradient_accumulation_steps}
  tonnage run job.toml -- torchrun --nproc-per-node 2 train.py --per_device_train_batch_size 16
  tonnage run swarm.toml                 # N nodes on one GPU; its [run] table names the command
  tonnage run --detach --stall 900 -- python train.py
  tonnage run --resume last

A command without a job runs under guard as well, but no batch can be computed for it.
Its stdin is empty: what asks questions finds the end of the input.";

/// Runs a command under guard: held against the GPU, restarted with a batch that fits, recorded
#[derive(Args)]
#[command(after_help = job_args::SHORT, after_long_help = format!("{EXAMPLES}\n\n{}", exit::RUN))]
pub struct RunArgs {
    #[command(flatten)]
    job: JobArgs,

    #[command(flatten)]
    policy: PolicyArgs,

    /// Leaves the run to a supervisor of its own, which outlives the terminal
    #[arg(short, long, help_heading = "Run")]
    detach: bool,

    /// Goes on with a run that stopped, failed or lost its supervisor
    #[arg(long, value_name = "RUN", help_heading = "Run", conflicts_with_all = ["command", "MODEL"])]
    resume: Option<String>,

    /// What else than `does not fit` is refused: the job as it is written, before anything is started
    #[arg(long, value_name = "VERDICT", help_heading = "Run", conflicts_with = "force")]
    fail_on: Option<FailOn>,

    /// Prints the run as JSON at its end, and nothing of what it writes
    #[arg(long, help_heading = "Run")]
    json: bool,

    /// The command: `{micro_batch_size}`, `{gradient_accumulation_steps}`, any key of the job, `{resume_from_checkpoint}`,
    /// `{seed}`, `{node}`, `{attempt_dir}` are filled in
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// How a run is kept alive.
#[derive(Args)]
struct PolicyArgs {
    /// Starts of the command, at most [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Run")]
    max_attempts: Option<u32>,

    /// No attempt begins after so many seconds
    #[arg(long, value_name = "SECONDS", help_heading = "Run")]
    max_time: Option<u64>,

    /// The least micro-batch that is tried [default: 1]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Run")]
    min_micro_batch: Option<u64>,

    /// Seconds between asking processes to end and ending them [default: 30]
    #[arg(long, value_name = "SECONDS", help_heading = "Run")]
    grace: Option<u64>,

    /// Seconds without output and without work after which it counts as hung [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Run")]
    stall: Option<u64>,

    /// Seconds between the starts of two nodes [default: 0]
    #[arg(long, value_name = "SECONDS", help_heading = "Run")]
    stagger: Option<u64>,

    /// The longest that a neighbour on the GPU is waited for, in seconds [default: 600]
    #[arg(long, value_name = "SECONDS", help_heading = "Run")]
    wait: Option<u64>,

    /// The folder of `checkpoint-N` folders [default: the command's --output_dir]
    #[arg(long, value_name = "FOLDER", help_heading = "Run")]
    checkpoints: Option<String>,

    /// Never changes the batch
    #[arg(long, help_heading = "Run")]
    no_adjust: bool,

    /// Allows remedies that change the training (8-bit optimizer, LoRA, shorter rows)
    #[arg(long, help_heading = "Run")]
    allow_changes: bool,

    /// Starts although the job is predicted not to fit
    #[arg(long, help_heading = "Run")]
    force: bool,

    /// Has Python tell the allocator's peaks at its end, without a change of the script
    #[arg(long, help_heading = "Run")]
    observe: bool,

    /// Lets others read the run's folder
    #[arg(long, help_heading = "Run")]
    shared: bool,
}

impl PolicyArgs {
    fn apply_flags(&self, policy: Policy) -> Policy {
        Policy {
            max_attempts: self.max_attempts.unwrap_or(policy.max_attempts),
            max_seconds: self.max_time.or(policy.max_seconds),
            min_micro_batch: self.min_micro_batch.unwrap_or(policy.min_micro_batch),
            grace_seconds: self.grace.unwrap_or(policy.grace_seconds),
            stall_seconds: self.stall.or(policy.stall_seconds),
            stagger_seconds: self.stagger.unwrap_or(policy.stagger_seconds),
            wait_seconds: self.wait.unwrap_or(policy.wait_seconds),
            checkpoints: self.checkpoints.clone().or_else(|| policy.checkpoints.clone()),
            adjusts: !self.no_adjust,
            changes_training: self.allow_changes,
            forced: self.force,
            shared: self.shared,
            observes: self.observe || policy.observes,
            ..policy
        }
    }
}

impl RunArgs {
    /// Runs it.
    ///
    /// # Errors
    /// When the job cannot be resolved, there is no command, or the run cannot be recorded.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        os::check_supported()?;
        let store = Store::of_user();
        let (folder, secrets) = match &self.resume {
            Some(name) => (store.find(name)?, Secrets::default()),
            None => {
                let (run, secrets) = self.read_request()?;
                self.check_request(&run)?;
                (store.create(run)?, secrets)
            }
        };
        if self.detach {
            start_supervisor(&folder, &secrets)?;
            return terminal.print(&format!("{}\n", folder.id())).map(|()| Exit::Done);
        }
        terminal.say(&format!("run {}", folder.id()));
        let result = supervise_here(&folder, secrets, !self.json, terminal)?;
        let (run, mut state) = (folder.run(), folder.state());
        // The record may have been lost meanwhile; how it ended is known here.
        state.result = Some(result.clone());
        let line = RunLine::new(run, &state, false, now_ms());
        if self.json {
            terminal.print(&json(&run_json(run, &state, &line))?)?;
        } else {
            terminal.tell(&text::run_screen(run, &state, &line, false, &terminal.look));
        }
        Ok(exit_of(&result))
    }

    /// Refuses a tight job where `--fail-on` says so. One that does not fit is the guard's, which tries smaller batches.
    fn check_request(&self, run: &RunRecord) -> Result<(), Failure> {
        let (Some(_), Some(job)) = (self.fail_on, &run.job) else { return Ok(()) };
        let spec = recorded_source(job)?.resolve(&[])?.job;
        let verdict = verdict_on(&spec, &spec.gpu)?;
        if verdict.fit == Fit::DoesNotFit || FailOn::passes(self.fail_on, verdict.fit) {
            return Ok(());
        }
        let (safe, usable) = (verdict.safe_bytes, Bytes(verdict.usable_bytes));
        let enough = shown_bound(safe).map_or_else(String::new, |safe| format!(", {} are surely enough", Bytes(safe)));
        let problem = format!("refused: the job is tight, {} of {usable}{enough}", Bytes(verdict.total_bytes));
        let hint = Some("nothing was started; leave out --fail-on to run it, or `tonnage plan` finds room".to_owned());
        Err(Failure { problem, hint, exit: Exit::No, of_job: None })
    }

    fn read_request(&self) -> Result<(RunRecord, Secrets), Failure> {
        make_request(&self.job, &self.command, |policy| self.policy.apply_flags(policy))
    }
}

/// The record of what was typed: a job, a command, and what the flags make of the job file's policy.
///
/// # Errors
/// When the job cannot be resolved, or there is no command.
pub fn make_request(
    job: &JobArgs,
    command: &[String],
    policy: impl Fn(Policy) -> Policy,
) -> Result<(RunRecord, Secrets), Failure> {
    let has_job = job.model.is_some() || job.small_gpt.is_some() || !job.from.is_empty();
    let source = has_job.then(|| read_source(job)).transpose()?;
    let source = source.map(|source| on_a_gpu(source, "a run is held against a GPU"));
    let table = match source.as_ref().and_then(|source| source.file.as_ref()) {
        Some(file) => RunTable::read_table(&file.name, &file.text)?,
        None => RunTable::default(),
    };
    let command = if command.is_empty() { table.command.clone() } else { command.to_vec() };
    if command.is_empty() {
        return Err(Failure::bad_input("there is no command")
            .with_hint("write it after `--`, or as `command` in the job file's [run] table"));
    }
    if let Some(problem) = cannot_start(&command) {
        return Err(Failure::bad_input(problem)
            .with_hint("is its environment activated, its name spelt right? Nothing was recorded"));
    }
    let source = source.map(|source| run_by(source, OsStr::new(&command[0])));
    let resolved = source.as_ref().map(|source| source.resolve(&[])).transpose()?;
    let given = source.as_ref().zip(resolved.as_ref());
    let job = given.map(|(source, resolved)| (JobRecord::new(source, resolved), &resolved.job));
    let policy = policy(table.apply(Policy::default()));
    let here = std::env::current_dir().map_err(|error| Failure::about_file(".", &error))?;
    Ok(run_record(command, here.display().to_string(), job, &table, policy)?)
}

/// How long a supervisor may take until it has its run.
const TAKES_ITS_RUN: Duration = Duration::from_secs(5);

/// Starts a supervisor that is no child of this terminal, and waits until it has the run: whoever asks for the run that
/// lives finds this one.
fn start_supervisor(folder: &RunFolder, secrets: &Secrets) -> Result<(), Failure> {
    let path = folder.path().join("supervisor.log");
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    let log = opened.map_err(|error| RunError::file(&path, error))?;
    let program = std::env::current_exe().map_err(|error| Failure::about_file("tonnage", &error))?;
    let mut command = Command::new(program);
    command.arg("supervise").arg(folder.path()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
    let mut child = command.spawn().map_err(|error| Failure::about_file("tonnage", &error))?;
    // Through a pipe: what stands in a file or on a command line is read by others.
    let told = child.stdin.take().map(|mut pipe| pipe.write_all(serde_json::json!(secrets.0).to_string().as_bytes()));
    told.transpose().map_err(|error| Failure::about_file("tonnage", &error))?;
    let until = Instant::now() + TAKES_ITS_RUN;
    let has_ended = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
    while !folder.is_supervised() && !has_ended(&mut child) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
