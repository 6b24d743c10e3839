//! Errors of the CUDA runtime and driver as PyTorch raises them, and limits of kernels.

use super::{Reading, Signature, is_said};
use crate::failure::cause::FailureCause;
use crate::failure::memory::GpuMemory;
use crate::failure::text::{after, has};

fn without_numbers(likely: bool) -> Option<Reading> {
    Reading::whole(FailureCause::GpuMemory(GpuMemory { backend: "CUDA", likely, ..GpuMemory::default() }))
}

/// Out of memory outside PyTorch's allocator's own message: no numbers.
pub(super) const MEMORY: Signature = Signature {
    name: "cuda_memory",
    needles: &["out of memory"],
    follow: 0,
    read: |text| {
        let messages =
            ["CUDA error: out of memory", "HIP error: out of memory", "cuda runtime error (2) : out of memory at"];
        let said = messages.iter().any(|message| is_said(text, message));
        if said { without_numbers(false) } else { None }
    },
};

/// Expandable segments go through the driver's own interface.
pub(super) const DRIVER: Signature = Signature {
    name: "cuda_driver_memory",
    needles: &["CUDA driver error: "],
    follow: 0,
    read: |text| {
        if is_said(text, "CUDA driver error: out of memory") {
            return without_numbers(false);
        }
        if is_said(text, "CUDA driver error: device not ready") { without_numbers(true) } else { None }
    },
};

const FAULTS: &[&str] = &[
    "an illegal memory access was encountered",
    "device-side assert triggered",
    "misaligned address",
    "an illegal instruction was encountered",
    "unspecified launch failure",
    "uncorrectable ECC error encountered",
    "uncorrectable NVLink error detected during the execution",
    "no kernel image is available for execution on the device",
    "CUBLAS_STATUS_EXECUTION_FAILED when calling",
];

pub(super) const FAULT: Signature = Signature {
    name: "cuda_fault",
    needles: &["CUDA error: "],
    follow: 0,
    read: |text| {
        let error = after(text, "CUDA error: ").unwrap_or_default();
        let fault = FAULTS.iter().any(|fault| error.starts_with(fault));
        if fault && is_said(text, "CUDA error: ") { Reading::whole(FailureCause::CudaFault) } else { None }
    },
};

/// A kernel's shared memory: not the GPU's memory.
pub(super) const TRITON: Signature = Signature {
    name: "triton_resources",
    needles: &["out of resource: "],
    follow: 0,
    read: |text| {
        let said = has(text, "OutOfResources: out of resource: ") && has(text, "Required: ");
        if said { Reading::whole(FailureCause::KernelLimit) } else { None }
    },
};

/// Ops that count in 32 bits.
pub(super) const ELEMENTS: Signature = Signature {
    name: "torch_elements",
    needles: &["more than INT_MAX elements"],
    follow: 0,
    read: |text| {
        let said = has(text, "not supported for tensors with more than INT_MAX elements") && !text.contains('`');
        if said { Reading::whole(FailureCause::KernelLimit) } else { None }
    },
};
