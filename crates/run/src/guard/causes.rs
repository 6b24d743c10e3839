//! What follows a failure of each class: the guard's policy, one line a class. A class that is not decided does not compile.

use tonnage_core::failure::Class;
use tonnage_core::record::{FailureClass, FailureRecord};

/// What is done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// A smaller pass at the same effective batch, then remedies.
    Smaller,
    /// Without expandable segments.
    WithoutExpandableSegments,
    /// The same, as soon as others give memory back.
    Wait,
    /// The same after a pause, from the newest checkpoint: the cause lies outside and may be gone.
    Again,
    /// From a checkpoint that lies further on than where this attempt began; without one it would end the same way.
    FromCheckpoint(&'static str),
    /// Nothing: the reason.
    GiveUp(&'static str),
}

/// What follows a failure: every class has its line, so that a new one does not compile without.
pub(super) fn reaction(failure: &FailureRecord) -> Reaction {
    match &failure.class {
        FailureClass::Known(class) => of_known(*class, failure.at_start),
        FailureClass::Stalled => Reaction::Again,
        FailureClass::ProgramError => of_program(failure.at_start),
        FailureClass::NotStarted => Reaction::GiveUp("the command could not be started"),
        FailureClass::Other(_) => Reaction::FromCheckpoint("a failure that this version does not know"),
    }
}

const fn of_program(at_start: bool) -> Reaction {
    Reaction::GiveUp(match at_start {
        true => "a crash at start, before any step: the program failed, and would again",
        false => "the program failed, and would again",
    })
}

const fn of_known(class: Class, at_start: bool) -> Reaction {
    match class {
        Class::GpuMemory | Class::Fragmentation | Class::OutsideAllocator => Reaction::Smaller,
        Class::ExpandableSharing => Reaction::WithoutExpandableSegments,
        Class::Neighbour | Class::EngineStart => Reaction::Wait,
        Class::Killed
        | Class::NcclTimeout
        | Class::NcclError
        | Class::Unreachable
        | Class::PortInUse
        | Class::DeviceBusy
        | Class::IoError
        | Class::NodeFailure
        | Class::Preempted
        | Class::Evicted
        | Class::Terminated
        | Class::Hangup => Reaction::Again,
        Class::TimeLimit => Reaction::FromCheckpoint(
            "the scheduler's time limit was reached: a longer one cures it, or checkpoints that a next job goes on from",
        ),
        Class::Requeued => Reaction::FromCheckpoint(
            "the scheduler put the job back into its queue, and starts it from there; a checkpoint keeps what was done",
        ),
        Class::Crash => Reaction::FromCheckpoint("a process crashed in native code"),
        Class::WorkerFailed => Reaction::FromCheckpoint("a worker failed; the reason stands in its own log"),
        Class::Raised | Class::Reported => of_program(at_start),
        Class::Cancelled => Reaction::GiveUp("the job was cancelled: nothing is to be repaired"),
        Class::Interrupted => Reaction::GiveUp("somebody interrupted it: nothing is to be repaired"),
        Class::Usage => Reaction::GiveUp("the command was not accepted as it was written, and would not be again"),
        Class::Divergence => {
            Reaction::GiveUp("the training diverged, and would again: a smaller learning rate, or bf16")
        }
        Class::HostMemory | Class::PagingFile => {
            Reaction::GiveUp("the host's memory ran out: fewer loader workers, not a smaller batch")
        }
        Class::SharedMemory => Reaction::GiveUp("/dev/shm is full: a larger one (--shm-size), not a smaller batch"),
        Class::DiskFull => Reaction::GiveUp("the disk is full"),
        Class::NoGpu => Reaction::GiveUp("no GPU can be used"),
        Class::DuplicateGpu => Reaction::GiveUp("two ranks use the same GPU: one process a GPU"),
        Class::DriverMismatch => Reaction::GiveUp("driver and libraries are of different versions"),
        Class::NoKernelImage => Reaction::GiveUp("this build of PyTorch has no kernels for this GPU: another build"),
        Class::Xid | Class::GpuHardware => Reaction::GiveUp("the GPU reports an error: not again on this one"),
        Class::CudaFault => Reaction::GiveUp("a kernel failed: a fault of the program, or of the GPU"),
        Class::KernelLimit => Reaction::GiveUp("a kernel asks for more than its limits; this is not memory"),
        Class::AllocatorCap => Reaction::GiveUp("memory is free, but a limit or a private pool keeps it"),
        Class::EngineCapacity => {
            Reaction::GiveUp("an inference engine has no room for another request: shorter ones, or a larger cache")
        }
        Class::Protobuf => Reaction::GiveUp("packages disagree about protobuf"),
    }
}

/// A failure in a few words.
pub(super) fn failure_words(failure: &FailureRecord) -> String {
    let when = if failure.at_start { ", at start" } else { "" };
    format!("{}{when} ({})", failure.class.title(), first_sentence(failure))
}

/// The first line of the evidence, up to the end of its first sentence: its numbers are in the record.
fn first_sentence(failure: &FailureRecord) -> &str {
    failure.evidence.first().and_then(|text| text.split(". ").next()).unwrap_or_default()
}

/// Causes that may be gone by themselves.
pub(super) fn comes_from_outside(failure: &FailureRecord) -> bool {
    matches!(reaction(failure), Reaction::Again | Reaction::Wait)
}

/// Why it ends, with the evidence.
pub(super) fn with_evidence(reason: &str, failure: &FailureRecord) -> String {
    format!("{reason} ({})", failure.evidence.first().cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use tonnage_core::failure::CLASSES;

    use super::*;

    #[test]
    fn sentences_hold_no_names_of_programs() {
        for (class, ..) in CLASSES {
            let failure = FailureRecord { class: (*class).into(), ..FailureRecord::default() };
            let reason = match reaction(&failure) {
                Reaction::GiveUp(reason) | Reaction::FromCheckpoint(reason) => reason,
                _ => "",
            };
            for text in [reason, failure_words(&failure).as_str()] {
                assert!(!text.contains(class.name()) || !class.name().contains('_'), "{text}");
            }
        }
    }
}
