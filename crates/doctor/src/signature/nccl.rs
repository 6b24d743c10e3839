//! NCCL and the process groups over it (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp).

use super::{Reading, Signature};
use crate::cause::{Collective, FailureCause};
use crate::text::{has_phrase, integer_after, text_after};

pub(super) const MEMORY: Signature = Signature {
    name: "nccl_memory",
    needles: &["Failed to CUDA calloc", "Failed to CUDA malloc", "ut of memory"],
    also: &["NCCL WARN"],
    follow: 0,
    read: |text| {
        let requested =
            integer_after(text, "Failed to CUDA calloc").or_else(|| integer_after(text, "Failed to CUDA malloc"));
        let warned = has_phrase(text, "NCCL WARN")
            && (requested.is_some() || (has_phrase(text, "Cuda failure") && has_phrase(text, "'out of memory'")));
        if warned { outside(requested) } else { None }
    },
};

fn outside(requested: Option<u64>) -> Option<Reading> {
    Reading::whole(FailureCause::OutsideAllocator { library: "NCCL", requested })
}

pub(super) const TIMEOUT: Signature = Signature {
    name: "nccl_timeout",
    needles: &["Watchdog caught collective operation timeout"],
    also: &[],
    follow: 0,
    read: |text| {
        let work = text_after(text, "caught collective operation timeout: WorkNCCL(")?;
        let op = text_after(work, "OpType=").and_then(|op| op.split([',', ')']).next());
        Reading::whole(FailureCause::NcclTimeout(Collective {
            sequence: integer_after(work, "SeqNum="),
            op: op.map(|op| op.chars().take(40).collect()),
            ran_ms: integer_after(work, "ran for "),
            last_completed: None,
            last_enqueued: None,
            group: group(text),
        }))
    },
};

/// Which collective each rank finished last: the lowest number is the rank that stopped first.
pub(super) const LAST_WORK: Signature = Signature {
    name: "nccl_last_work",
    needles: &["last completed NCCL work: ", "last completed work: "],
    also: &[],
    follow: 0,
    read: |text| {
        let watchdog = has_phrase(text, "detected by watchdog at work")
            || has_phrase(text, "due to a collective timeout")
            || has_phrase(text, "] Timeout at NCCL work: ");
        let last =
            integer_after(text, "last completed NCCL work: ").or_else(|| integer_after(text, "last completed work: "));
        let sequence = integer_after(text, "at work: ")
            .or_else(|| integer_after(text, "at NCCL work: "))
            .or_else(|| integer_after(text, "at work sequence id: "));
        let last_enqueued =
            integer_after(text, "last enqueued NCCL work: ").or_else(|| integer_after(text, "last enqueued work: "));
        let group = group(text);
        let collective = Collective { sequence, last_enqueued, last_completed: last, group, ..Collective::default() };
        if watchdog { Reading::whole(FailureCause::NcclTimeout(collective)) } else { None }
    },
};

/// `[PG ID 0 PG GUID 0(default_pg) Rank 3]`: the group's name.
fn group(text: &str) -> Option<String> {
    let group = text_after(text, "[PG ")?.split(" Rank ").next()?;
    (group.len() < 60).then(|| group.to_owned())
}

pub(super) const HEARTBEAT: Signature = Signature {
    name: "nccl_heartbeat",
    needles: &["watchdog got stuck for ", "ProcessGroupNCCL watchdog hang"],
    also: &[],
    follow: 0,
    read: |text| {
        let stuck = has_phrase(text, "watchdog got stuck for ") && has_phrase(text, " seconds without making progress");
        let hang = has_phrase(text, "Terminating the process after attempting to dump debug info, due to");
        if stuck || hang { Reading::whole(FailureCause::NcclTimeout(Collective::default())) } else { None }
    },
};

/// PyTorch's exception; what NCCL itself says stands in the lines that follow.
pub(super) const ERROR: Signature = Signature {
    name: "nccl_error",
    needles: &["NCCL error in: ", "NCCL Error "],
    also: &[": NCCL error in: ", "RuntimeError: NCCL Error "],
    follow: 3,
    read: |text| {
        // Two ranks that write at once tear the exception's name from its message.
        let torn = text.starts_with(": NCCL error in: ");
        let raised =
            torn || has_phrase(text, "Error: NCCL error in: ") || has_phrase(text, "RuntimeError: NCCL Error ");
        if !raised {
            return None;
        }
        if has_phrase(text, "Cuda failure") && has_phrase(text, "'out of memory'") {
            return outside(None);
        }
        Reading::part(Some(FailureCause::NcclError))
    },
};

/// The other end is gone.
pub(super) const PEER: Signature = Signature {
    name: "nccl_peer",
    needles: &["Connection closed by ", "ncclRemoteError", "ncclSystemError", "process has unexpectedly disconnected"],
    also: &["NCCL WARN", "gloo/transport/", "ncclRemoteError: ", "ncclSystemError: ", "An MPI communication peer"],
    follow: 0,
    read: |text| {
        let nccl = has_phrase(text, "NCCL WARN") && has_phrase(text, "Connection closed by remote peer");
        let gloo = has_phrase(text, "gloo/transport/") && has_phrase(text, "Connection closed by peer");
        let status = text.starts_with("ncclRemoteError: ") || text.starts_with("ncclSystemError: ");
        // Open MPI's.
        let mpi = text.starts_with("An MPI communication peer process has unexpectedly disconnected");
        if mpi || nccl || gloo || status { Reading::whole(FailureCause::NcclError) } else { None }
    },
};

/// InfiniBand's and RoCE's calls (nccl/src/misc/ibvwrap.cc, transport/net_ib.cc) that make or use a connection. Those
/// that look for devices fail on healthy machines too.
pub(super) const VERBS: Signature = Signature {
    name: "nccl_verbs",
    needles: &["Call to ibv_", "Got completion from peer "],
    also: &["NCCL WARN"],
    follow: 0,
    read: |text| {
        let calls = ["modify_qp", "create_qp", "create_cq", "reg_mr", "alloc_pd", "post_send", "post_recv", "poll_cq"];
        let call = text_after(text, "Call to ibv_")
            .is_some_and(|call| calls.iter().any(|name| call.starts_with(name)) && has_phrase(call, " failed"));
        let completion = has_phrase(text, "Got completion from peer ")
            && (has_phrase(text, " with error ") || has_phrase(text, " status="));
        if call || completion { Reading::whole(FailureCause::NcclError) } else { None }
    },
};

/// A CUDA call of NCCL that failed, on the rank that says so. What a driver lacks, NCCL does without.
pub(super) const CUDA: Signature = Signature {
    name: "nccl_cuda",
    needles: &["NCCL WARN Cuda failure", "NCCL Error "],
    also: &["NCCL WARN Cuda failure", "what():  NCCL Error "],
    follow: 0,
    read: |text| {
        let harmless =
            ["not supported", "already enabled", "out of memory"].iter().any(|words| has_phrase(text, words));
        let warned = has_phrase(text, "NCCL WARN Cuda failure") && !harmless;
        let raised = text.starts_with("what():  NCCL Error ");
        if warned || raised { Reading::whole(FailureCause::NcclError) } else { None }
    },
};
