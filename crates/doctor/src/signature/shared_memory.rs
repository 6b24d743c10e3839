//! `/dev/shm`, through which data loaders and NCCL exchange data.

use super::{Reading, Signature, is_said};
use crate::cause::FailureCause;
use crate::text::has_phrase;

fn full() -> Option<Reading> {
    Reading::whole(FailureCause::SharedMemory { pid: None })
}

/// `torch/csrc/DataLoader.cpp`
pub(super) const BUS_ERROR: Signature = Signature {
    name: "dataloader_bus_error",
    needles: &[
        "Unexpected bus error encountered in worker",
        "shared memory. Please try to raise",
        "Bus error",
        "zsh: bus error",
    ],
    also: &[],
    follow: 0,
    read: |text| {
        let worker = has_phrase(text, "ERROR: Unexpected bus error encountered in worker.");
        let shell = text == "Bus error (core dumped)"
            || text == "Bus error"
            || text.starts_with("zsh: bus error")
            || is_said(text, "Fatal Python error: Bus error");
        let report = has_phrase(text, ": line ") && has_phrase(text, " Bus error ");
        let srun = has_phrase(text, "srun: error: ") && has_phrase(text, ": task") && has_phrase(text, ": Bus error");
        let raise =
            has_phrase(text, "dataloader's workers are out of shared memory") && !has_phrase(text, "killed by signal");
        if worker || raise || shell || report || srun { full() } else { None }
    },
};

/// NCCL's segments, and Python's and PyTorch's.
pub(super) const SEGMENT: Signature = Signature {
    name: "shared_memory_segment",
    needles: &[
        "/dev/shm/",
        "unable to write to file </torch_",
        "unable to resize file </torch_",
        "unable to allocate shared memory",
        "posix_fallocate",
    ],
    also: &["NCCL WARN", "Error: ", "Error] "],
    follow: 0,
    read: |text| {
        let nccl = has_phrase(text, "NCCL WARN")
            && ["Error while creating shared memory segment", "failed to extend /dev/shm/", "posix_fallocate failed"]
                .iter()
                .any(|words| has_phrase(text, words));
        let torch = has_phrase(text, "RuntimeError: unable to write to file </torch_")
            || has_phrase(text, "RuntimeError: unable to allocate shared memory(shm)")
            || (has_phrase(text, "RuntimeError: unable to resize file </torch_")
                && has_phrase(text, "No space left on device"));
        let disk = has_phrase(text, "[Errno 28] No space left on device: '/dev/shm/");
        if nccl || torch || disk { full() } else { None }
    },
};
