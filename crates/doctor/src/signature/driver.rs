//! No GPU to be had, or a driver that does not fit.

use super::{Reading, Signature, is_said, says_any};
use crate::cause::FailureCause;
use crate::text::has_phrase;

const NONE: &[&str] = &[
    "No CUDA GPUs are available",
    "No HIP GPUs are available",
    "Found no NVIDIA driver on your system",
    "CUDA error: invalid device ordinal",
    "cuda runtime error (10) : invalid device ordinal at",
    "cuda runtime error (38) : no CUDA-capable device is detected at",
    "HIP error: invalid device ordinal",
    "CUDA error: no CUDA-capable device is detected",
    "CUDA unknown error - this may be due to an incorrectly set up environment",
    "Torch not compiled with CUDA enabled",
    "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False",
    "Failed to infer device type",
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
];

pub(super) const NO_GPU: Signature = Signature {
    name: "no_gpu",
    needles: &[
        "No CUDA GPUs are available",
        "Found no NVIDIA driver",
        "invalid device ordinal",
        "no CUDA-capable device is detected",
        "No HIP GPUs are available",
        "CUDA unknown error - this may be",
        "not compiled with CUDA enabled",
        "Attempting to deserialize object on a CUDA device",
        "Failed to infer device type",
        "couldn't communicate with the NVIDIA driver",
        "could not select device driver",
        "Error 802: system not yet initialized",
    ],
    also: &[],
    follow: 0,
    read: |text| {
        let docker = is_said(text, "could not select device driver") && has_phrase(text, "[[gpu]]");
        let fabric =
            has_phrase(text, "cudaGetDeviceCount()") && has_phrase(text, "Error 802: system not yet initialized");
        let check = is_said(text, "THCudaCheck FAIL file=") && has_phrase(text, "error=10 : invalid device ordinal");
        if docker || fabric || check || says_any(text, NONE) { Reading::whole(FailureCause::NoGpu) } else { None }
    },
};

pub(super) const MISMATCH: Signature = Signature {
    name: "driver_mismatch",
    needles: &[
        "Driver/library version mismatch",
        "NVML/RM version mismatch",
        "NVIDIA driver on your system is too old",
        "driver version is insufficient",
        "unsupported display driver",
        "forward compatibility was attempted on non supported HW",
        "PTX was compiled with an unsupported toolchain",
    ],
    also: &[],
    follow: 0,
    read: |text| {
        let messages = [
            "Driver/library version mismatch",
            "The NVIDIA driver on your system is too old (found version",
            "CUDA driver version is insufficient for CUDA runtime version",
            "system has unsupported display driver / cuda driver combination",
            "CUDA error: the provided PTX was compiled with an unsupported toolchain",
        ];
        // NVML's newer words for the first of them.
        let newer = has_phrase(text, "RM has detected an NVML/RM version mismatch") && !super::is_talk(text);
        let forward =
            has_phrase(text, "cudaGetDeviceCount()") && has_phrase(text, "forward compatibility was attempted");
        if newer || forward || says_any(text, &messages) { Reading::whole(FailureCause::DriverMismatch) } else { None }
    },
};

/// A GPU that answered before and does so no more.
pub(super) const LOST: Signature = Signature {
    name: "gpu_lost",
    needles: &["NVML_ERROR_GPU_IS_LOST", "GPU is lost", "determine the device handle for GPU"],
    also: &[],
    follow: 0,
    read: |text| {
        let lost = has_phrase(text, "NVMLError_GpuIsLost: GPU is lost")
            || is_said(text, "NVML_ERROR_GPU_IS_LOST")
            || text.ends_with("GPU is lost.  Reboot the system to recover this GPU")
            || (is_said(text, "Unable to determine the device handle for GPU") && text.ends_with("Unknown Error"));
        if lost { Reading::whole(FailureCause::Xid { code: None, hardware: true }) } else { None }
    },
};
