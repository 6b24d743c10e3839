//! Errors of the CUDA runtime and driver as PyTorch raises them, and limits of kernels.

use super::{Reading, Signature, is_said, says_any};
use crate::cause::FailureCause;
use crate::exception::exception_stated;
use crate::memory::GpuMemory;
use crate::text::{has_phrase, text_after, text_before};

fn without_numbers(likely: bool) -> Option<Reading> {
    Reading::whole(FailureCause::GpuMemory(GpuMemory { backend: "CUDA", likely, ..GpuMemory::default() }))
}

/// Out of memory outside PyTorch's allocator's own message: no numbers.
pub(super) const MEMORY: Signature = Signature {
    name: "cuda_memory",
    needles: &["ut of memory"],
    also: &[": out of memory"],
    follow: 0,
    read: |text| {
        let check = is_said(text, "THCudaCheck FAIL file=") && has_phrase(text, "error=2 : out of memory");
        let triton = is_said(text, "Triton Error [HIP]:") && text.ends_with(": out of memory");
        let caffe2 = has_phrase(text, "error == cudaSuccess. 2 vs 0.");
        if check || triton || caffe2 || says_any(text, MESSAGES) { without_numbers(false) } else { None }
    },
};

/// The runtime's words with those of whoever called it.
const MESSAGES: &[&str] = &[
    "CUDA error: out of memory",
    "HIP error: out of memory",
    "cuda runtime error (2) : out of memory at",
    "Triton Error [CUDA]: out of memory",
    "cudaErrorMemoryAllocation: out of memory",
    "cuMemAlloc failed: out of memory",
    "cudaMalloc failed: out of memory",
    "cudaMalloc retry failed: out of memory",
    "hipErrorOutOfMemory: out of memory",
];

/// What programs of CUDA and HIP print that check every call by a macro: the error's words or its name, file and line.
pub(super) const CHECKED: Signature = Signature {
    name: "gpu_assert",
    needles: &["GPUassert: "],
    also: &[],
    follow: 0,
    read: |text| {
        const MEMORY_WORDS: &[&str] = &["out of memory", "OutOfMemory", "MemoryAllocation"];
        const FAULT_WORDS: &[&str] = &["IllegalAddress", "LaunchFailure", "Assert "];
        let said = text.strip_prefix("GPUassert: ")?;
        let has = |words: &[&str]| words.iter().any(|words| has_phrase(said, words));
        if has(MEMORY_WORDS) {
            return without_numbers(false);
        }
        let fault = has(FAULTS) || has(FAULT_WORDS);
        if fault { Reading::whole(FailureCause::CudaFault { assertion: None }) } else { None }
    },
};

/// Expandable segments go through the driver's own interface.
pub(super) const DRIVER: Signature = Signature {
    name: "cuda_driver_memory",
    needles: &["CUDA driver error: "],
    also: &[],
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
    "the launch timed out and was terminated",
    "invalid program counter",
    "hardware stack error",
    "CUBLAS_STATUS_EXECUTION_FAILED when calling",
    "CUBLAS_STATUS_INTERNAL_ERROR when calling",
];
/// Limits of a launch.
const LIMITS: &[&str] = &["too many resources requested for launch", "invalid configuration argument"];

pub(super) const FAULT: Signature = Signature {
    name: "cuda_fault",
    needles: &[
        "CUDA error: ",
        "HIP error: ",
        "cuda runtime error (",
        "an illegal memory access was",
        ": device-side assert triggered",
        ": misaligned address",
        ": unspecified launch failure",
    ],
    also: &[
        "illegal",
        "device-side assert",
        "misaligned",
        "launch",
        "counter",
        "stack",
        "CUBLAS_STATUS",
        "configuration",
    ],
    follow: 0,
    read: |text| {
        let prefixes = ["CUDA error: ", "HIP error: ", "cuda runtime error ("];
        let Some(prefix) = prefixes.into_iter().find(|prefix| is_said(text, prefix)) else { return of_library(text) };
        let error = text_after(text, prefix)?;
        // Before 1.5: `cuda runtime error (77) : an illegal memory access was encountered at file:line`.
        let error = error.split_once(") : ").filter(|_| prefix.ends_with('(')).map_or(error, |(_, error)| error);
        if FAULTS.iter().any(|fault| error.starts_with(fault)) {
            return Reading::whole(FailureCause::CudaFault { assertion: None });
        }
        let limit = LIMITS.iter().any(|limit| error.starts_with(limit));
        if limit { Reading::whole(FailureCause::KernelLimit) } else { None }
    },
};

/// A fault behind the words of who called CUDA: Thrust's, CuPy's and XLA's exceptions, checks of C++ programs.
fn of_library(text: &str) -> Option<Reading> {
    const NAMES: &[&str] = &["cudaError", "CUDA_ERROR_", "hipError", "CUDA error ", "CUDA Error "];
    let fault = FAULTS.iter().find(|fault| has_phrase(text, &format!(": {fault}")))?;
    let named = text_before(text, fault).is_some_and(|head| NAMES.iter().any(|name| has_phrase(head, name)));
    let raised = exception_stated(text, true).is_some_and(|(name, _)| !name.ends_with("Warning"));
    let said = (named || raised) && !super::is_talk(text);
    if said { Reading::whole(FailureCause::CudaFault { assertion: None }) } else { None }
}

/// Faults that others report: cuDNN, and the driver of AMD's GPUs.
pub(super) const REPORTED: Signature = Signature {
    name: "gpu_fault",
    needles: &["CUDNN_STATUS_EXECUTION_FAILED", "Memory access fault by GPU node"],
    also: &[],
    follow: 0,
    read: |text| {
        let said = says_any(
            text,
            &[
                "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
                "CuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
                "CUDNN_STATUS_EXECUTION_FAILED",
                "Memory access fault by GPU node",
            ],
        );
        if said { Reading::whole(FailureCause::CudaFault { assertion: None }) } else { None }
    },
};

/// A kernel's shared memory: not the GPU's memory.
pub(super) const TRITON: Signature = Signature {
    name: "triton_resources",
    needles: &["out of resource: "],
    also: &[],
    follow: 0,
    read: |text| {
        // Autotuning tries configurations that do not fit, and takes another (torch/_inductor/select_algorithm.py).
        let is_tried = has_phrase(text, "select_algorithm.py");
        let said = has_phrase(text, "OutOfResources: out of resource: ") && has_phrase(text, "Required: ") && !is_tried;
        if said { Reading::whole(FailureCause::KernelLimit) } else { None }
    },
};

/// Ops that count in 32 bits.
pub(super) const ELEMENTS: Signature = Signature {
    name: "torch_elements",
    needles: &["more than INT_MAX elements"],
    also: &[],
    follow: 0,
    read: |text| {
        let said =
            has_phrase(text, "not supported for tensors with more than INT_MAX elements") && !super::is_talk(text);
        if said { Reading::whole(FailureCause::KernelLimit) } else { None }
    },
};

/// What a kernel asserts, most often that an index is in range: this, not what follows from it, says what was wrong.
pub(super) const ASSERTION: Signature = Signature {
    name: "kernel_assertion",
    needles: &["thread: [", "Device-side assertion "],
    also: &["Assertion ", "' failed"],
    follow: 0,
    read: |text| {
        let kernel = has_phrase(text, "block: [") && has_phrase(text, "thread: [");
        // ROCm's words.
        if let Some(assertion) =
            text_after(text, ": Device-side assertion `").and_then(|rest| rest.split("' failed").next())
        {
            let assertion = Some(assertion.chars().take(200).collect());
            return Reading::whole(FailureCause::CudaFault { assertion });
        }
        // Markdown takes the backticks away.
        let assertion = text_after(text, "Assertion ")?.split(" failed").next()?;
        let assertion = assertion.trim_matches('`').chars().take(200).collect();
        if kernel { Reading::whole(FailureCause::CudaFault { assertion: Some(assertion) }) } else { None }
    },
};
