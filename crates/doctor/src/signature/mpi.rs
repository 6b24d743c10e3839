//! MPI's own errors, and those of UCX and libfabric below it: who sees one first ends all processes of the job.

use super::{Reading, Signature};
use crate::cause::{FailureCause, Worker};
use crate::text::{has_phrase, integer_after, signed_after, text_after, without_space};
use tonnage_core::failure::Class;

/// The layers, as advice asks for them.
pub(crate) const MPI: &str = "MPI";
pub(crate) const UCX_NAME: &str = "UCX";

/// The layer that speaks, of an error between ranks.
fn lost(layer: &str) -> Option<Reading> {
    Reading::whole(FailureCause::Stated { class: Class::NcclError, detail: Some(layer.to_owned()) })
}

/// Open MPI's `*** An error occurred in MPI_Bcast`, and MPICH's `Abort(15) on node 1 (rank 1 in comm 0): Fatal error in
/// PMPI_Init: text`, which had no head before 3.3.
pub(super) const FATAL: Signature = Signature {
    name: "mpi_fatal",
    needles: &["*** An error occurred in MPI_", "Fatal error in "],
    also: &["*** An error occurred in MPI_", "MPI_", "internal_"],
    follow: 0,
    read: |text| {
        let open_mpi = has_phrase(text, "*** An error occurred in MPI_");
        let mpich = (text.starts_with("Abort(") && has_phrase(text, ") on node "))
            || (text.starts_with("Fatal error in ") && text.ends_with("error stack:"));
        if open_mpi || mpich { lost(MPI) } else { None }
    },
};

/// `[1700.123] [n7:4711 :0] ib_device.c:1332 UCX  ERROR text`: of connections; others say what UCX then does without.
pub(super) const UCX: Signature = Signature {
    name: "ucx_error",
    needles: &["UCX  ERROR", "Transport retry count exceeded on "],
    also: &["UCX  ERROR", "ib_mlx5_log.c:"],
    follow: 0,
    read: |text| {
        const LOST: &[&str] = &["onnection ", "nreachable", "timed out", "imeout", "etry count", "ibv_", "no usable "];
        if has_phrase(text, "Transport retry count exceeded on ") {
            return lost(UCX_NAME);
        }
        let said = text_after(text, "UCX  ERROR")?;
        if LOST.iter().any(|words| has_phrase(said, words)) { lost(UCX_NAME) } else { None }
    },
};

/// What Open MPI says where a job cannot begin, or loses a machine (its help-*.txt), with what it is.
const STARTS: &[(&str, Class)] = &[
    ("There are not enough slots available in the system", Class::Usage),
    ("mpirun was unable to launch the specified application", Class::Usage),
    ("mpiexec was unable to launch the specified application", Class::Usage),
    ("It looks like MPI_INIT failed for some reason", Class::NcclError),
    ("It looks like orte_init failed for some reason", Class::NcclError),
    ("ORTE was unable to reliably start one or more daemons", Class::Unreachable),
    ("ORTE has lost communication with a remote daemon", Class::NcclError),
];

pub(super) const START: Signature = Signature {
    name: "mpi_start",
    needles: &[
        "There are not enough slots available in the system",
        "was unable to launch the specified application",
        "It looks like MPI_INIT failed",
        "It looks like orte_init failed",
        "ORTE was unable to reliably start",
        "ORTE has lost communication",
        "while attempting to start process rank ",
    ],
    also: &[],
    follow: 0,
    read: |text| {
        // Below what it could not start.
        if let Some(rank) = text.strip_prefix("while attempting to start process rank ") {
            let rank = rank.strip_suffix('.')?.parse().ok()?;
            let worker = Worker { rank: Some(rank), exit_code: 1, first: true, ..Worker::default() };
            return Reading::whole(FailureCause::WorkerFailed(worker));
        }
        let class = STARTS.iter().find(|(start, _)| text.starts_with(start))?.1;
        let detail = (class == Class::NcclError).then(|| MPI.to_owned());
        Reading::whole(FailureCause::Stated { class, detail })
    },
};

/// Hydra's report (MPICH, Intel MPI) of the first process that it saw end:
/// `=   RANK 5 PID 4711 RUNNING AT n7`, `=   KILLED BY SIGNAL: 9 (Killed)`, `=   EXIT CODE: 139`.
pub(super) const BAD: Signature = Signature {
    name: "mpi_bad_termination",
    needles: &["BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"],
    also: &[],
    follow: 6,
    read: |text| {
        let signal = integer_after(text, "KILLED BY SIGNAL: ").and_then(|signal| i64::try_from(signal).ok());
        let code = signed_after(text, "EXIT CODE: ");
        // A shell's way to state a signal; small numbers are what MPICH states of one.
        let of_code = code.map(|code| if (129..=192).contains(&code) { 128 - code } else { code });
        let rank = integer_after(text, "RANK ");
        let host = text_after(text, " RUNNING AT ").and_then(|host| host.split_whitespace().next()).map(str::to_owned);
        let pid = integer_after(text, " PID ");
        let ended = signal.map(|signal| -signal).or(of_code);
        let exit_code = ended.unwrap_or(1);
        let worker = Worker { rank, exit_code, pid, host, first: true, ..Worker::default() };
        Some(Reading { cause: Some(FailureCause::WorkerFailed(worker)), complete: ended.is_some() })
    },
};

/// A program that ended all others: `MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD` and its error code
/// in the next line (Open MPI), `application called MPI_Abort(MPI_COMM_WORLD, 1) - process 2` (MPICH).
pub(super) const ABORT: Signature = Signature {
    name: "mpi_abort",
    needles: &["MPI_ABORT was invoked on rank ", "application called MPI_Abort("],
    also: &[],
    follow: 2,
    read: |text| {
        let worker = |rank, exit_code| {
            FailureCause::WorkerFailed(Worker { rank: Some(rank), exit_code, first: true, ..Worker::default() })
        };
        if let Some(call) = text_after(text, "application called MPI_Abort(") {
            let code = call.split_once(", ").and_then(|(_, code)| signed_after(code, "")).unwrap_or(1);
            return Reading::whole(worker(integer_after(call, "process ")?, code));
        }
        let text = without_space(text);
        let rank = integer_after(&text, "invokedonrank")?;
        let code = signed_after(&text, "witherrorcode");
        Some(Reading { cause: Some(worker(rank, code.unwrap_or(1))), complete: code.is_some() })
    },
};
