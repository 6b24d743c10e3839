//! torchrun's report of workers that failed (torch/distributed/elastic/multiprocessing).

use super::{Reading, Signature};
use crate::failure::cause::{FailureCause, Worker};
use crate::failure::text::{compact, has, integer_after, signed_after};

/// The block at the end of the launcher's output: time, host, rank, exit code.
pub(super) const ROOT_CAUSE: Signature = Signature {
    name: "torchrun_root_cause",
    needles: &["Root Cause (first observed failure)"],
    also: &[],
    follow: 7,
    read: |text| {
        let text = compact(text);
        let Some(exit_code) = signed_after(&text, "exitcode:") else { return Reading::part(None) };
        let rank = integer_after(&text, "rank:");
        let pid = integer_after(&text, "(pid:");
        Reading::whole(FailureCause::WorkerFailed(Worker { rank, exit_code, pid, first: true }))
    },
};

/// DeepSpeed's launcher, and SLURM's of each task: the exit code alone.
pub(super) const EXIT: Signature = Signature {
    name: "launcher_exit",
    needles: &["exits with return code = ", "Exited with exit code "],
    also: &["] exits with return code = ", "srun: error: "],
    follow: 0,
    read: |text| {
        let code = if has(text, "srun: error: ") { "Exited with exit code " } else { "exits with return code = " };
        let status = signed_after(text, code)?;
        // A shell between launcher and job adds 128 to a signal.
        let exit_code = if (129..=192).contains(&status) { 128 - status } else { status };
        if exit_code == 0 {
            return None;
        }
        Reading::whole(FailureCause::WorkerFailed(Worker { exit_code, ..Worker::default() }))
    },
};

/// The agent's line when the first of its workers has failed.
pub(super) const FAILED: Signature = Signature {
    name: "torchrun_failed",
    needles: &["failed (exitcode: "],
    also: &[],
    follow: 0,
    read: |text| {
        let exit_code = signed_after(text, "failed (exitcode: ")?;
        let rank = integer_after(text, "local_rank: ")?;
        let pid = integer_after(text, "(pid: ");
        Reading::whole(FailureCause::WorkerFailed(Worker { rank: Some(rank), exit_code, pid, first: false }))
    },
};
