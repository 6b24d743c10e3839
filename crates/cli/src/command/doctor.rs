//! `tonnage doctor`: what killed a job, read from its logs.

use std::path::PathBuf;

use clap::Args;
use tonnage_core::gpu::Gpu;
use tonnage_core::job::{JobSpec, Origin};
use tonnage_core::plan::proposal::consider_remedies;
use tonnage_core::plan::remedy::overrides;
use tonnage_doctor::{Diagnosis, FailureCause, Finding, GpuMemory, Scan, Source, diagnose};
use tonnage_report::{DoctorAnswer, DoctorView, JobAnswer, text};

use super::json;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::job_args::JobArgs;
use crate::job_input::read_source;
use crate::logs::Logs;
use crate::terminal::Terminal;

const HELP: &str = "Examples:
  tonnage doctor train.log
  tonnage doctor logs/                      # a folder of per-rank logs
  python train.py 2>&1 | tee run.log | tonnage doctor -
  tonnage doctor train.log --job job.toml   # beside the estimate; what fits
  tonnage doctor train.log --exit-status 137

It reads PyTorch, JAX and TensorFlow, NCCL, torchrun, SLURM and the kernel's log; docs/failures.md lists every form.

Exit codes:
  0  the logs were read, whether or not a failure was found
  2  wrong usage, or a log that cannot be read";

/// Says what killed a job, from its logs: cause, evidence, first failing rank, what to do
#[derive(Args)]
#[command(after_help = HELP)]
pub struct DoctorArgs {
    /// Logs, folders of logs, or `-` for stdin
    #[arg(value_name = "LOG", required_unless_present = "exit_status")]
    logs: Vec<PathBuf>,

    /// The job that ran: a job file (.toml), a model's name or a config.json
    #[arg(long, value_name = "JOB")]
    job: Option<String>,

    /// The exit status of the job: a number of a shell (137) or of Python (-9)
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = parse_status)]
    exit_status: Option<i64>,

    /// Prints JSON (see docs/json.md)
    #[arg(long)]
    json: bool,

    /// Logs in memory, each with a name
    #[arg(skip)]
    texts: Vec<(String, Vec<u8>)>,

    /// The job that ran, as another program has it
    #[arg(skip)]
    beside: Option<JobArgs>,
}

impl DoctorArgs {
    /// What another program asks.
    pub fn of_logs(
        logs: Vec<PathBuf>,
        texts: Vec<(String, Vec<u8>)>,
        exit_status: Option<i64>,
        beside: Option<JobArgs>,
    ) -> Self {
        Self { logs, job: None, exit_status, json: false, texts, beside }
    }

    /// Reads and answers.
    ///
    /// # Errors
    /// When a log or the job cannot be read.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let mut logs = Logs::default();
        self.logs.iter().try_for_each(|path| logs.read_path(path))?;
        self.texts.iter().try_for_each(|(name, text)| logs.scan_text(name, text))?;
        logs.sources.extend(self.exit_status.and_then(exit_status));
        let diagnosis = diagnose(&logs.sources);
        let named = |job| JobArgs { model: Some(job), ..JobArgs::default() };
        let job = self.job.map(named).or(self.beside);
        let job = job.map(|job| beside_job(&job, &diagnosis)).transpose()?.flatten();
        let answer = DoctorAnswer { sources: &logs.sources, diagnosis, not_read: logs.not_read, job };
        terminal.show(
            self.json,
            || json(&DoctorView::new(&answer)),
            || text::doctor_screen(&answer, &terminal.look),
        )?;
        Ok(Exit::Done)
    }
}

fn parse_status(text: &str) -> Result<i64, String> {
    match text.parse().map_err(|_| "not a number".to_owned())? {
        0 => Err("0 is what a job that ended well leaves; without a failure there is nothing to explain".to_owned()),
        status @ (-64..=-1 | 1..=255) => Ok(status),
        _ => Err("a shell's status is 1 to 255, a signal as Python states it -1 to -64".to_owned()),
    }
}

/// What an exit status says, as if a log said it.
fn exit_status(status: i64) -> Option<Source> {
    let scan = Scan { findings: vec![Finding::of_exit_status(status)?], ..Scan::default() };
    Some(Source { name: format!("exit status {status}"), scan, ..Source::default() })
}

/// The job's estimate on the GPU of the message, and what would make it fit; `None` where memory is not what failed.
fn beside_job(job: &JobArgs, diagnosis: &Diagnosis<'_>) -> Result<Option<JobAnswer>, Failure> {
    let source = read_source(job)?;
    let mut job = source.resolve(&[])?.job;
    let Some(FailureCause::GpuMemory(memory)) = diagnosis.root.as_ref().map(|root| &root.finding.cause) else {
        return Ok(None);
    };
    let other_gpu = other_gpu(&job.gpu, memory);
    job.gpu = as_it_was(&job, memory);
    let proposals = consider_remedies(&job, &source)?;
    let changes = proposals.together.as_ref().map(|together| together.changes.as_slice()).unwrap_or_default();
    let with = source.resolve(&overrides(changes, &Origin::Plan))?.job;
    Ok(Some(JobAnswer { job, proposals, with, other_gpu }))
}

/// What the job's GPU has, where the one of the message is another: drivers differ by less.
fn other_gpu(gpu: &Gpu, memory: &GpuMemory) -> Option<u64> {
    let total = memory.total?;
    (total.abs_diff(gpu.usable_bytes) > gpu.usable_bytes / 20).then_some(gpu.usable_bytes)
}

/// The job's GPU with the bytes that the message states, less what other processes held.
fn as_it_was(job: &JobSpec, memory: &GpuMemory) -> Gpu {
    let others = memory.neighbours_bytes().saturating_add(memory.unexplained().unwrap_or(0));
    let left = memory.total.map(|total| total.saturating_sub(others)).filter(|left| *left > 0);
    Gpu { usable_bytes: left.unwrap_or(job.gpu.usable_bytes), ..job.gpu.clone() }
}
