//! `tonnage probe`: a few steps of the real command, predicted beside measured; the difference is kept for later runs.

use clap::Args;
use serde_json::json;
use tonnage_core::record::{CorrectionRecord, Outcome, Policy};
use tonnage_core::units::Bytes;
use tonnage_run::corrections;
use tonnage_run::store::Store;

use super::run::request;
use super::supervise::supervise_here;
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::job_args::JobArgs;
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage probe job.toml -- python train.py --per_device_train_batch_size 8
  tonnage probe job.toml --stop-after 5 -- torchrun --nproc-per-node 2 train.py";

/// Two steps reach a step's peak with its optimizer state; the third shows that it stays.
const STEPS: u64 = 3;

/// Runs a few steps of a command and puts what its allocator took beside what was calculated
#[derive(Args)]
#[command(after_help = format!("{EXAMPLES}\n\nThe script should log its steps, and see its longest rows first.\n\n{}", exit::HELP))]
pub struct ProbeArgs {
    #[command(flatten)]
    job: JobArgs,

    /// Steps after which the command is ended, as its log counts them
    #[arg(long, value_name = "N", default_value_t = STEPS, help_heading = "Probe")]
    stop_after: u64,

    /// Seconds between asking the command to end and ending it
    #[arg(long, value_name = "SECONDS", default_value_t = 20, help_heading = "Probe")]
    grace: u64,

    /// Prints JSON, and nothing of what the command writes
    #[arg(long, help_heading = "Probe")]
    json: bool,

    /// The command, as of `tonnage run`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl ProbeArgs {
    /// Runs it.
    ///
    /// # Errors
    /// When there is no job or command, the command fails, or it told no peaks.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let policy = |policy: Policy| Policy {
            max_attempts: 1,
            forced: true,
            observes: true,
            stop_after_steps: Some(self.stop_after),
            grace_seconds: self.grace,
            ..policy
        };
        let run = request(&self.job, &self.command, policy)?;
        let Some(job) = run.job.clone() else {
            return Err(Failure::input("there is no job to compare with").hint("`tonnage probe JOB -- COMMAND`"));
        };
        let store = Store::new(Store::default_root());
        let folder = store.create(run)?;
        let result = supervise_here(&folder, !self.json, terminal)?;
        if result.outcome != Outcome::Succeeded {
            return Err(Failure {
                problem: result.reason,
                hint: Some("`tonnage show` tells more".to_owned()),
                exit: Exit::No,
            });
        }
        let state = folder.state();
        let attempt = state.nodes.iter().flat_map(|node| node.attempts.last()).next();
        let found = attempt.and_then(|attempt| Some((attempt.record.predicted?, attempt.measured?)));
        let Some((predicted, (allocated, reserved))) = found else {
            let failure = Failure::input("the command told no peaks: is it Python with PyTorch on a GPU?");
            return Err(failure.hint("a process that is killed tells nothing; a longer --grace may help"));
        };
        let correction = CorrectionRecord {
            offset_bytes: reserved.saturating_sub(predicted.peak_reserved_bytes),
            usable_bytes: None,
            evidence: format!(
                "a probe reserved {} where {} was calculated",
                Bytes(reserved),
                Bytes(predicted.peak_reserved_bytes)
            ),
        };
        corrections::keep(store.root(), &job, &correction)?;
        if self.json {
            let answer = json!({
                "version": tonnage_report::VERSION,
                "run": folder.id(),
                "predicted": {"peak_allocated_bytes": predicted.peak_allocated_bytes,
                              "peak_reserved_bytes": predicted.peak_reserved_bytes},
                "measured": {"peak_allocated_bytes": allocated, "peak_reserved_bytes": reserved},
                "correction_bytes": correction.offset_bytes,
            });
            terminal.print(&format!("{answer:#}\n"))?;
        } else {
            let row = |name: &str, predicted: u64, measured: u64| {
                let difference = (measured as f64 / predicted.max(1) as f64 - 1.0) * 100.0;
                format!("  {name:<12}{:>12}{:>12}{difference:>+9.2} %\n", Bytes(predicted), Bytes(measured))
            };
            let head = format!("  {:<12}{:>12}{:>12}\n", "peak", "predicted", "measured");
            let rows = row("allocated", predicted.peak_allocated_bytes, allocated)
                + &row("reserved", predicted.peak_reserved_bytes, reserved);
            terminal.print(&(head + &rows))?;
        }
        Ok(Exit::Done)
    }
}
