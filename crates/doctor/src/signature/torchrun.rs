//! torchrun's report of workers that failed (torch/distributed/elastic/multiprocessing).

use super::{Reading, Signature};
use crate::cause::{FailureCause, Worker};
use crate::text::{has_phrase, integer_after, signed_after, text_after, without_space};

/// The block at the end of the launcher's output: time, host, rank, exit code.
pub(super) const ROOT_CAUSE: Signature = Signature {
    name: "torchrun_root_cause",
    needles: &["Root Cause (first observed failure)"],
    also: &[],
    follow: 7,
    read: |text| {
        let text = without_space(text);
        let rank = integer_after(&text, "rank:");
        let stated = signed_after(&text, "exitcode:");
        // Where an excerpt ends before the exit code, the rank is known all the same.
        let Some(exit_code) = stated.or(rank.map(|_| 0)) else { return Reading::part(None) };
        let pid = integer_after(&text, "(pid:");
        let host = text_after(&text, "host:").and_then(|host| host.split("rank:").next()).map(|host| host.to_owned());
        let host = host.filter(|host| host.len() < 100);
        let worker = Worker { rank, exit_code, pid, first: true, is_local: false, host };
        Some(Reading { cause: Some(FailureCause::WorkerFailed(worker)), complete: stated.is_some() })
    },
};

/// DeepSpeed's launcher, and SLURM's of each task: the exit code alone.
pub(super) const EXIT: Signature = Signature {
    name: "launcher_exit",
    needles: &["exits with return code = ", "Exited with exit code "],
    also: &["] exits with return code = ", "srun: error: "],
    follow: 0,
    read: |text| {
        let code =
            if has_phrase(text, "srun: error: ") { "Exited with exit code " } else { "exits with return code = " };
        let status = signed_after(text, code)?;
        // A shell between launcher and job adds 128 to a signal.
        let exit_code = if (129..=192).contains(&status) { 128 - status } else { status };
        if exit_code == 0 {
            return None;
        }
        let local = rank_of_command(text);
        let rank = integer_after(text, ": task ").or(local);
        let host = text_after(text, "srun: error: ").and_then(|rest| rest.split(':').next()).map(str::to_owned);
        let is_local = local.is_some();
        // DeepSpeed's states the code of the first that it saw end, and then ends the others; SLURM's states each one's.
        let first = host.is_none();
        let worker = Worker { rank, exit_code, first, is_local, host, ..Worker::default() };
        Reading::whole(FailureCause::WorkerFailed(worker))
    },
};

/// `mpirun detected that one or more processes exited with non-zero status, thus causing the job to be terminated.` and,
/// some lines below, the first of them.
pub(super) const MPI: Signature = Signature {
    name: "mpi_exit",
    needles: &["exited with non-zero status"],
    also: &["mpirun", "prterun", "mpiexec"],
    follow: 8,
    read: |text| {
        let text = without_space(text);
        // `[[4711,1],3]` (Open MPI 4), `[prterun-node1-4711@1,3]` (5).
        let name = text_after(&text, "Processname:[").and_then(|name| name.split("Exitcode").next());
        let rank = name.and_then(|name| name.rsplit_once(',')?.1.trim_end_matches(']').parse().ok());
        let code = signed_after(&text, "Exitcode:");
        let exit_code = code.unwrap_or(1);
        let worker = Worker { rank, exit_code, first: true, ..Worker::default() };
        Some(Reading { cause: Some(FailureCause::WorkerFailed(worker)), complete: code.is_some() })
    },
};

/// The rank in the command that DeepSpeed's launcher and `torch.distributed.launch` of PyTorch 1 print. It is the
/// command of the last process they started, whichever failed (`cmd` of their `sigkill_handler`): of rank 0 alone it
/// says who failed, for then there is no other.
pub(super) fn rank_of_command(text: &str) -> Option<u64> {
    let rank = integer_after(text, "--local_rank=").or_else(|| integer_after(text, "local_rank', '"));
    rank.filter(|rank| *rank == 0)
}

/// The agent's line when the first of its workers has failed.
pub(super) const FAILED: Signature = Signature {
    name: "torchrun_failed",
    needles: &["failed (exitcode: ", ") FAILED (exitcode ", "] Child process with PID "],
    also: &[],
    follow: 0,
    read: |text| {
        if let Some(worker) = of_lightning(text) {
            return Reading::whole(FailureCause::WorkerFailed(worker));
        }
        // PyTorch 1.9: `Child process 4711 (local_rank 3) FAILED (exitcode 1)`.
        let child = text.starts_with("Child process ");
        let exit_code = signed_after(text, if child { ") FAILED (exitcode " } else { "failed (exitcode: " })?;
        let rank = integer_after(text, if child { "(local_rank " } else { "local_rank: " })?;
        let pid = integer_after(text, if child { "Child process " } else { "(pid: " });
        let rank = Some(rank);
        Reading::whole(FailureCause::WorkerFailed(Worker { rank, exit_code, pid, is_local: true, ..Worker::default() }))
    },
};

/// Lightning's, of the first that it saw: `[rank: 2] Child process with PID 4711 terminated with code 1.`
fn of_lightning(text: &str) -> Option<Worker> {
    let child = text_after(text, "] Child process with PID ")?;
    let exit_code = signed_after(child, " terminated with code ").filter(|code| *code != 0)?;
    let rank = integer_after(text, "[rank: ");
    Some(Worker { rank, exit_code, pid: integer_after(child, ""), first: true, ..Worker::default() })
}
