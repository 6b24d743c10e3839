//! What schedulers do to a job though nothing is wrong with it.

use super::{Reading, Signature};
use crate::cause::FailureCause;
use crate::text::has_phrase;
use tonnage_core::failure::Class;

fn stated(class: Class) -> Option<Reading> {
    Reading::whole(FailureCause::Stated { class, detail: None })
}

/// SLURM's `*** JOB 123 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME LIMIT ***`, of a job or a step.
pub(super) const SLURM: Signature = Signature {
    name: "slurm_cancelled",
    needles: &[" CANCELLED AT "],
    also: &["error: *** ", "slurmstepd: *** ", "]: *** "],
    follow: 0,
    read: |text| {
        // SLURM's daemon before 14.
        let of_daemon = text.starts_with("slurmd[") && has_phrase(text, "]: *** ");
        let is_said = of_daemon || ["error: *** ", "slurmstepd: *** "].iter().any(|head| has_phrase(text, head));
        if !is_said || !text.trim_end_matches(' ').ends_with("***") || super::is_talk(text) {
            return None;
        }
        // A step is cancelled when one of its tasks has failed.
        if has_phrase(text, "DUE TO TASK FAILURE") {
            return Reading::whole(FailureCause::Cancelled { is_step: true });
        }
        match REASONS.iter().find(|(words, _)| has_phrase(text, words)) {
            Some((_, Class::TimeLimit)) => Reading::whole(FailureCause::TimeLimit),
            Some((_, class)) => stated(*class),
            None => Reading::whole(FailureCause::Cancelled { is_step: has_phrase(text, "*** STEP ") }),
        }
    },
};

const REASONS: &[(&str, Class)] = &[
    ("DUE TO TIME LIMIT", Class::TimeLimit),
    ("DUE TO PREEMPTION", Class::Preempted),
    ("DUE TO JOB REQUEUE", Class::Requeued),
    ("DUE TO NODE FAILURE", Class::NodeFailure),
    ("DUE TO NODE_FAIL", Class::NodeFailure),
];

/// PBS, LSF and clouds.
pub(super) const OTHERS: Signature = Signature {
    name: "scheduler_ended",
    needles: &[
        "job killed: walltime",
        "TERM_RUNLIMIT",
        "TERM_PREEMPT",
        "TERM_OWNER",
        "pot instance interruption",
        "pot Instance interruption",
        "was preempted",
        "instances.preempted",
        "reemption notice",
        "instance/preempted",
        "Node failure on ",
        "marked dead because the detector",
        "node on which the actor was running died",
        "its node has died",
        "Job allocation ",
    ],
    also: &[],
    follow: 0,
    read: |text| {
        let class = match () {
            () if super::is_talk(text) || has_phrase(text, " if ") || has_phrase(text, "n't ") => return None,
            () if has_phrase(text, "=>> PBS: job killed: walltime") => return Reading::whole(FailureCause::TimeLimit),
            () if has_phrase(text, "TERM_RUNLIMIT: job killed") => return Reading::whole(FailureCause::TimeLimit),
            () if has_phrase(text, "TERM_PREEMPT: ") => Class::Preempted,
            () if has_phrase(text, "TERM_OWNER: job killed by owner") => Class::Cancelled,
            () if is_taken_back(text) => Class::Preempted,
            // srun and salloc, whose job somebody cancelled.
            () if has_phrase(text, ": Job allocation ") && has_phrase(text, " has been revoked") => Class::Cancelled,
            () if has_phrase(text, "Job allocation ") => return None,
            () if has_phrase(text, "Node failure on ")
                || has_phrase(text, "marked dead")
                || has_phrase(text, "node") =>
            {
                Class::NodeFailure
            }
            () => return None,
        };
        stated(class)
    },
};

/// What clouds say of a machine that they take back (AWS's notices; Google's operations, metadata and agents).
fn is_taken_back(text: &str) -> bool {
    const MACHINES: &[&str] = &["nstance", "VM", "TPU", "ode ", "achine", "ob ", "orker"];
    let notice = ["pot instance interruption", "pot Instance interruption", "reemption notice", "instances.preempted"];
    // `changed to FALSE` is what a machine says that stays.
    let metadata = has_phrase(text, "instance/preempted") && has_phrase(text, "TRUE");
    // An engine preempts requests.
    let was = has_phrase(text, "was preempted") && MACHINES.iter().any(|machine| has_phrase(text, machine));
    metadata || was || notice.iter().any(|words| has_phrase(text, words))
}

/// Kubernetes' events and states of pods.
pub(super) const EVICTED: Signature = Signature {
    name: "pod_evicted",
    needles: &["The node was low on resource", "victed", "The node had condition"],
    also: &["The node was low", "eason", "The node had condition", "STATUS", "  Evicted  "],
    follow: 0,
    read: |text| {
        let plain: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = has_phrase(&plain, "The node was low on resource: ")
            || has_phrase(&plain, "The node had condition: [")
            || has_phrase(&plain, "Reason: Evicted")
            || has_phrase(&plain, "\"reason\":\"Evicted\"")
            || has_phrase(&plain, "\"reason\": \"Evicted\"");
        let detail = plain.split("low on resource: ").nth(1).and_then(|rest| rest.split(['.', ' ']).next());
        let cause = FailureCause::Stated { class: Class::Evicted, detail: detail.map(str::to_owned) };
        if said && !super::is_talk(text) { Reading::whole(cause) } else { None }
    },
};
