//! `tonnage rehearse`: the user's own script over a phantom GPU.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::RangedU64ValueParser;
use tonnage_core::estimate::Fit;
use tonnage_core::gpu::{DEFAULT_GPU, Gpu};
use tonnage_core::job::Resolved;
use tonnage_core::rehearsal::{Against, Rehearsal, Unrecorded, compare_estimate, context_bytes, largest_gpu};
use tonnage_core::units::Bytes;
use tonnage_report::{RehearsalView, text};
use tonnage_run::rehearse::{EndedBy, Options, RehearseError, Rehearsed, rehearse_command, write_library};

use super::json;
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::job_args::JobArgs;
use crate::job_input::{read_source, run_by, simulate_resolved};
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage rehearse --gpu h200 -- python train.py --batch-size 8
  tonnage rehearse --gpu l4 --gpus 4 -- torchrun --nproc-per-node 4 train.py
  tonnage rehearse --gpu t4,l4,a100-80 -- python train.py
  tonnage rehearse --gpu l4 --save-trace step.jsonl --against job.toml -- python train.py";

/// Steps without a new peak after which a script has shown enough.
const STEADY: u32 = 3;

/// How the tokens of a batch are shared out among experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Experts {
    // Variants without help of their own keep `--help` to a screen.
    Even,
    Worst,
}

/// Runs your own training command over a GPU that isn't there, and tells its peak
#[derive(Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::REHEARSE))]
pub struct RehearseArgs {
    /// The GPU that the phantom stands for; of several, the largest, and the answer is given for all. Without it the phantom is
    /// an H100, and the answer is sizes and the GPUs that carry them
    #[arg(long, value_name = "GPU[,GPU..]")]
    gpu: Option<String>,

    /// How many of them the machine has
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = RangedU64ValueParser::<u32>::new().range(1..=64))]
    gpus: u32,

    /// Stops after N optimizer steps; without it, when no peak has grown for 3 steps
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    steps: Option<u32>,

    /// Stops after S seconds
    #[arg(long, value_name = "S", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    seconds: Option<u32>,

    /// Lets the script run to its own end
    #[arg(long, conflicts_with = "steps")]
    whole: bool,

    /// Tokens that a `generate` of transformers makes; without it, as many as it may
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    generate_length: Option<u32>,

    /// Seconds that a loop may do nothing but read device values before it is stopped
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    patience: u32,

    /// The share of the tokens that an expert gets where routing asks the device: even, or (worst) as many as it can have
    #[arg(long, value_enum, value_name = "SHARE", default_value_t = Experts::Even)]
    experts: Experts,

    /// Follows no values of the host on the device: small tables, masks, choices of experts
    #[arg(long)]
    no_values: bool,

    /// The longest rows of the data fill every other batch, so that the peak of the whole run is seen and not of its first batches
    #[arg(long)]
    longest: bool,

    /// Every row of a data loader has N tokens: the longest of its batch, over and over
    #[arg(long, value_name = "N", conflicts_with = "longest", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    row_length: Option<u32>,

    /// Puts the estimate of a job (a job file or a model's name) beside the rehearsal
    #[arg(long, value_name = "JOB")]
    against: Option<String>,

    /// Saves the trace for `tonnage trace replay`; with several devices, one file each
    #[arg(long, value_name = "FILE")]
    save_trace: Option<PathBuf>,

    /// Prints JSON (see docs/json.md); what the command prints goes to stderr
    #[arg(long)]
    json: bool,

    /// Writes the phantom library to a folder, for other programs to preload, and says how; rehearses nothing
    #[arg(long, value_name = "DIR", conflicts_with_all = ["command", "against", "save_trace"])]
    write_library: Option<PathBuf>,

    /// The command, after `--`
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "write_library")]
    command: Vec<OsString>,
}

impl RehearseArgs {
    /// Rehearses.
    ///
    /// # Errors
    /// When nothing could be rehearsed; not when the command fails.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let phantoms = parse_gpus(self.gpu.as_deref().unwrap_or(DEFAULT_GPU))?;
        if let Some(folder) = &self.write_library {
            let library = write_library(folder).map_err(rehearse_failure)?;
            terminal.print(&how_to_preload(&library, &phantoms))?;
            return Ok(Exit::Done);
        }
        let options = self.rehearsal_options(&phantoms)?;
        let program = self.command.first().map_or(OsStr::new(""), OsString::as_os_str);
        let job = self.against.as_deref().map(|name| estimated_job(name, program)).transpose()?;
        self.save_trace.as_deref().map(check_writable).transpose()?;
        let rehearsed = rehearse_command(&options).map_err(rehearse_failure)?;
        let rehearsal = &rehearsed.rehearsal;
        if rehearsal.seen.is_empty() && rehearsal.unrecorded.is_empty() {
            return nothing_seen(&rehearsed.whole().map_err(rehearse_failure)?.rehearsal);
        }
        let seen_by_driver = rehearsal.seen.is_empty();
        let job = job.filter(|_| !seen_by_driver);
        let against = job.as_ref().map(|job| compare_with_job(job, rehearsal)).transpose()?;
        if let Some(path) = &self.save_trace {
            save_timelines(path, &rehearsed)?;
        }
        if self.json {
            terminal.print(&json(&RehearsalView::new(rehearsal, against.as_ref()))?)?;
        } else {
            terminal.print(&text::rehearsal_screen(rehearsal, &terminal.look))?;
            if let Some(against) = &against {
                terminal.print(&text::estimate_lines(against, &terminal.look))?;
            }
        }
        if seen_by_driver {
            self.check_recorded()?;
        }
        Ok(match rehearsed.ended_by {
            Some(EndedBy { signal, .. }) => command_exit(Some(128 + signal)),
            None => exit_of(rehearsal),
        })
    }

    /// What was asked for can only come of a record.
    fn check_recorded(&self) -> Result<(), Failure> {
        let asked = [("--save-trace", self.save_trace.is_some()), ("--against", self.against.is_some())];
        match asked.iter().find(|(_, is_asked)| *is_asked) {
            None => Ok(()),
            Some((flag, _)) => Err(Failure::bad_input(format!(
                "{flag}: no process left a record, and the driver knows no allocations"
            ))
            .with_hint("Python without -S, -E and -I, and `tonnage train`, leave one")),
        }
    }

    fn rehearsal_options(&self, phantoms: &[Gpu]) -> Result<Options, Failure> {
        let gpu = largest_gpu(phantoms).ok_or_else(|| Failure::bad_input("`--gpu`: no GPU is named"))?;
        Ok(Options {
            command: self.command.clone(),
            gpu: gpu.clone(),
            asked: if self.gpu.is_some() { phantoms.to_vec() } else { Vec::new() },
            gpus: self.gpus,
            steps: self.steps,
            seconds: self.seconds,
            steady: (self.steps.is_none() && !self.whole).then_some(STEADY),
            generate_length: self.generate_length,
            patience: self.patience,
            worst_experts: self.experts == Experts::Worst,
            values: !self.no_values,
            longest: self.longest,
            row_length: self.row_length,
            stdout_to_stderr: self.json,
        })
    }
}

/// What another program is started with, so that it sees the phantom.
fn how_to_preload(library: &Path, gpus: &[Gpu]) -> String {
    let device = |gpu: &Gpu| {
        let (major, minor) = gpu.compute_capability;
        let (total, sms) = (gpu.usable_bytes, gpu.multiprocessors);
        format!("name={},total={total},cc={major}.{minor},sms={sms}", gpu.name)
    };
    let devices: Vec<_> = gpus.iter().map(device).collect();
    let devices = devices.join(";");
    let shown = library.display();
    let folder = library.parent().unwrap_or(library).display();
    format!(
        "{shown}\n\nA program sees a GPU that isn't there when it is started with it (docs/phantom.md lists all variables):\n  \
         LD_PRELOAD={shown} TONNAGE_PHANTOM_DEVICES='{devices}' python train.py\nMonitors ask NVML alone:\n  \
         LD_LIBRARY_PATH={folder} nvitop\n"
    )
}

/// The GPUs in a list; a custom GPU has commas of its own (`24GiB,sm_86,multiprocessors=82`).
fn parse_gpus(text: &str) -> Result<Vec<Gpu>, Failure> {
    let mut names: Vec<String> = Vec::new();
    for part in text.split(',') {
        match names.last_mut() {
            Some(last) if part.starts_with("sm_") || part.contains('=') => *last = format!("{last},{part}"),
            _ => names.push(part.to_owned()),
        }
    }
    let parse = |name: &String| {
        Gpu::parse(name).map_err(|error| Failure::bad_input(format!("`--gpu`: {error}")).with_hint(error.hint()))
    };
    let gpus: Vec<Gpu> = names.iter().map(parse).collect::<Result<_, _>>()?;
    gpus.iter().try_for_each(has_room)?;
    Ok(gpus)
}

/// A GPU that is smaller than its context holds nothing.
fn has_room(gpu: &Gpu) -> Result<(), Failure> {
    let (usable, context) = (Bytes(gpu.usable_bytes), Bytes(context_bytes(gpu)));
    if usable.0 > context.0 {
        return Ok(());
    }
    let problem = format!("`--gpu`: of {usable} nothing is left beside the CUDA context, which takes {context}");
    Err(Failure::bad_input(problem)
        .with_hint("its context goes by multiprocessors: name them, as in 8GiB,sm_89,multiprocessors=58"))
}

pub(super) fn rehearse_failure(error: RehearseError) -> Failure {
    let hint = match &error {
        RehearseError::Start { .. } => Some("name the program after `--`, as you would start it".to_owned()),
        RehearseError::NotLinux => {
            Some("rehearse in a Linux container or on a CI machine; no GPU is needed".to_owned())
        }
        RehearseError::File { .. } | RehearseError::Record { .. } | RehearseError::Interrupted { .. } => None,
    };
    let exit = match &error {
        RehearseError::Interrupted { signal, .. } => command_exit(Some(128 + signal)),
        _ => Exit::Usage,
    };
    Failure { problem: error.to_string(), hint, exit, of_job: None }
}

/// No process of the command left a record: it failed before, there was nothing to rehearse, or nobody could record it.
pub(super) fn nothing_seen(rehearsal: &Rehearsal) -> Result<Exit, Failure> {
    let code = rehearsal.exit_code;
    let held = rehearsal.unrecorded.iter().map(Unrecorded::peak_bytes).max();
    if let Some(held) = held {
        let problem = format!(
            "the command used the GPU (at most {} of it, CUDA context included), but our recorder was not in it",
            Bytes(held)
        );
        let hint = "Python must be started without -S, -E and -I; a process that is killed (SIGKILL, os._exit) leaves no figures; \
                    of programs other than Python no more is known than this peak";
        let failure = Failure::bad_input(problem).with_hint(hint);
        return Err(Failure { exit: if code == Some(0) { Exit::Usage } else { command_exit(code) }, ..failure });
    }
    match code {
        Some(0) => Err(Failure::bad_input("no process of the command used the GPU").with_hint(
            "it must be Python with a CUDA build of PyTorch that trains on `cuda` (is a flag for it missing?), with LD_PRELOAD and \
             LD_LIBRARY_PATH as it was given them; pass these on where a launcher or container clears the environment",
        )),
        code => {
            let how = code.map_or_else(String::new, |code| format!(" with exit code {code}"));
            let failure = Failure::bad_input(format!("the command failed{how} before it used the GPU")).with_hint(
                "if it found no GPU: what clears the environment (env -i, sudo, ssh, some launchers) must pass LD_PRELOAD, \
                 LD_LIBRARY_PATH, PYTHONPATH and TONNAGE_* on",
            );
            Err(Failure { exit: command_exit(code), ..failure })
        }
    }
}

fn command_exit(code: Option<i32>) -> Exit {
    Exit::Command(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

/// The job to put beside the rehearsal, with the transformers that `program` will find; read before the command runs, because
/// that may take long.
fn estimated_job(name: &str, program: &OsStr) -> Result<Resolved, Failure> {
    let args = JobArgs { model: Some(name.to_owned()), ..JobArgs::default() };
    Ok(run_by(read_source(&args)?, program).resolve(&[])?)
}

/// The estimate of `job` beside the fullest device.
fn compare_with_job(job: &Resolved, rehearsal: &Rehearsal) -> Result<Against, Failure> {
    let seen = rehearsal.fullest().ok_or_else(|| Failure::bad_input("nothing was seen"))?;
    compare_estimate(&simulate_resolved(job)?, seen).map_err(Failure::from)
}

/// Refuses a place for the trace before the command runs, because that may take long.
fn check_writable(path: &Path) -> Result<(), Failure> {
    let is_new = !path.exists();
    let opened = fs::OpenOptions::new().append(true).create(true).open(path);
    let tried = opened.and_then(|_| if is_new { fs::remove_file(path) } else { Ok(()) });
    tried.map_err(|error| Failure::about_file(&format!("`--save-trace`: {}", path.display()), &error))
}

/// Copies the traces to where the user wants them.
fn save_timelines(path: &Path, rehearsed: &Rehearsed) -> Result<(), Failure> {
    let seen = rehearsed.rehearsal.seen.iter().zip(&rehearsed.traces);
    let traced: Vec<_> = seen.filter_map(|(seen, trace)| Some((seen, trace.as_ref()?))).collect();
    let owners: Vec<_> =
        traced.iter().map(|(seen, _)| Owner { rank: seen.rank, gpu: seen.device.index, pid: seen.pid }).collect();
    for (owner, (_, trace)) in owners.iter().zip(&traced) {
        let to = owner.numbered_path(path, &owners);
        fs::copy(trace, &to).map_err(|error| Failure::about_file(&to.display().to_string(), &error))?;
    }
    Ok(())
}

/// Whose trace it is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Owner {
    rank: u32,
    /// The device's index in its process.
    gpu: u32,
    pid: u32,
}

impl Owner {
    /// `step.jsonl` as `step-rank1-gpu0.jsonl` where there are others, as `step-rank0-gpu0-pid7.jsonl` where one of them has this rank and
    /// GPU too: processes that no launcher started are all rank 0.
    fn numbered_path(self, path: &Path, all: &[Self]) -> PathBuf {
        if all.len() == 1 {
            return path.to_owned();
        }
        let Self { rank, gpu, pid } = self;
        let alike = all.iter().filter(|other| (other.rank, other.gpu) == (rank, gpu)).count();
        let process = if alike > 1 { format!("-pid{pid}") } else { String::new() };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let extension = path.extension().map_or_else(String::new, |text| format!(".{}", text.to_string_lossy()));
        path.with_file_name(format!("{stem}-rank{rank}-gpu{gpu}{process}{extension}"))
    }
}

/// What scripts are told: the verdict, or that the command failed for its own reasons.
fn exit_of(rehearsal: &Rehearsal) -> Exit {
    if rehearsal.is_waiting() {
        return Exit::Waiting;
    }
    if !rehearsal.ran_out() && !rehearsal.ended_well() {
        return command_exit(rehearsal.exit_code);
    }
    if rehearsal.skipped() && !rehearsal.ran_out() {
        return Exit::Waiting;
    }
    if rehearsal.asked.is_empty() {
        return if rehearsal.ran_out() { Exit::No } else { Exit::Done };
    }
    let fits = |gpu: &Gpu| rehearsal.verdict_on(gpu).is_some_and(|on_gpu| on_gpu.fit != Fit::DoesNotFit);
    if rehearsal.asked.iter().any(fits) { Exit::Done } else { Exit::No }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_gpus_may_hold_custom_ones() {
        let ids =
            |text: &str| parse_gpus(text).unwrap().into_iter().map(|gpu| gpu.compute_capability).collect::<Vec<_>>();
        assert_eq!(ids("t4,24GiB,sm_86,multiprocessors=82,l4"), [(7, 5), (8, 6), (8, 9)]);
        assert!(parse_gpus("t4,,l4").is_err());
    }

    #[test]
    fn traces_of_several_devices_have_names_of_their_own() {
        let owner = |rank, gpu, pid| Owner { rank, gpu, pid };
        let saved = |path: &str, all: &[Owner]| {
            all.iter().map(|one| one.numbered_path(Path::new(path), all).display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(saved("a/step.jsonl", &[owner(0, 0, 7)]), ["a/step.jsonl"]);
        assert_eq!(
            saved("a/step.jsonl", &[owner(0, 0, 7), owner(1, 0, 8)]),
            ["a/step-rank0-gpu0.jsonl", "a/step-rank1-gpu0.jsonl"]
        );
        // Processes that share a model without a launcher.
        assert_eq!(
            saved("step", &[owner(0, 0, 7), owner(0, 0, 8), owner(0, 3, 8)]),
            ["step-rank0-gpu0-pid7", "step-rank0-gpu0-pid8", "step-rank0-gpu3"]
        );
    }
}
