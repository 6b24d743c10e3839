//! Causes in words: which of them may pass by themselves, and which make another attempt pointless.

use tonnage_core::record::FailureRecord;

/// A failure in a few words.
pub(super) fn words(failure: &FailureRecord) -> String {
    // A message's first sentence says what; its numbers are in the record.
    let evidence = failure.evidence.first().and_then(|text| text.split(". ").next()).unwrap_or_default();
    let when = if failure.at_start { ", at start" } else { "" };
    format!("{}{when} ({evidence})", failure.class)
}

/// Causes that may be gone by themselves.
pub(super) fn comes_from_outside(class: &str) -> bool {
    matches!(
        class,
        "killed"
            | "stalled"
            | "nccl_timeout"
            | "nccl_error"
            | "port_in_use"
            | "neighbour"
            | "engine_start"
            | "preempted"
    )
}

/// Why another attempt would be pointless, where it would.
pub(super) fn pointless(failure: &FailureRecord) -> Option<String> {
    let advice = match failure.class.as_str() {
        "host_memory" => "the host's memory ran out: fewer loader workers, not a smaller batch",
        "shared_memory" => "/dev/shm is full: a larger one (--shm-size), not a smaller batch",
        "disk_full" => "the disk is full",
        "no_gpu" => "no GPU can be used",
        "driver_mismatch" => "driver and libraries are of different versions",
        "xid" => "the GPU reports an error: not again on this one",
        "cuda_fault" => "a kernel failed: a fault of the program, or of the GPU",
        "kernel_limit" => "a kernel asks for more than its limits; this is not memory",
        "allocator_cap" => "memory is free, but a limit or a private pool keeps it",
        "protobuf" => "packages disagree about protobuf",
        "program_error" if failure.at_start => "a crash at start, before any step: the program failed, and would again",
        "program_error" => "the program failed, and would again",
        "not_started" => "the command could not be started",
        _ => return None,
    };
    Some(format!("{advice} ({})", failure.evidence.first().cloned().unwrap_or_default()))
}
