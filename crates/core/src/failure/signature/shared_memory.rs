//! `/dev/shm`, through which data loaders and NCCL exchange data.

use super::{Reading, Signature};
use crate::failure::cause::FailureCause;
use crate::failure::text::has;

fn full() -> Option<Reading> {
    Reading::whole(FailureCause::SharedMemory { pid: None })
}

/// torch/csrc/DataLoader.cpp
pub(super) const BUS_ERROR: Signature = Signature {
    name: "dataloader_bus_error",
    needles: &["Unexpected bus error encountered in worker", "out of shared memory. Please try to raise"],
    follow: 0,
    read: |text| {
        let worker = has(text, "ERROR: Unexpected bus error encountered in worker.");
        let raise = has(text, "dataloader's workers are out of shared memory") && !has(text, "killed by signal");
        if worker || raise { full() } else { None }
    },
};

/// NCCL's segments, and Python's and PyTorch's.
pub(super) const SEGMENT: Signature = Signature {
    name: "shared_memory_segment",
    needles: &["/dev/shm/", "unable to write to file </torch_", "unable to allocate shared memory"],
    follow: 0,
    read: |text| {
        let nccl = has(text, "NCCL WARN")
            && (has(text, "Error while creating shared memory segment") || has(text, "failed to extend /dev/shm/"));
        let torch = has(text, "RuntimeError: unable to write to file </torch_")
            || has(text, "RuntimeError: unable to allocate shared memory(shm)");
        let disk = has(text, "[Errno 28] No space left on device: '/dev/shm/");
        if nccl || torch || disk { full() } else { None }
    },
};
