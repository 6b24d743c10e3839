//! No GPU to be had, or a driver that does not fit.

use super::{Reading, Signature, is_said};
use crate::failure::cause::FailureCause;
use crate::failure::text::has;

pub(super) const NO_GPU: Signature = Signature {
    name: "no_gpu",
    needles: &[
        "No CUDA GPUs are available",
        "Found no NVIDIA driver",
        "invalid device ordinal",
        "no CUDA-capable device is detected",
        "No HIP GPUs are available",
    ],
    follow: 0,
    read: |text| {
        let messages = [
            "No CUDA GPUs are available",
            "No HIP GPUs are available",
            "Found no NVIDIA driver on your system",
            "CUDA error: invalid device ordinal",
            "CUDA error: no CUDA-capable device is detected",
        ];
        if messages.iter().any(|message| is_said(text, message)) { Reading::whole(FailureCause::NoGpu) } else { None }
    },
};

pub(super) const MISMATCH: Signature = Signature {
    name: "driver_mismatch",
    needles: &[
        "Driver/library version mismatch",
        "NVIDIA driver on your system is too old",
        "driver version is insufficient",
        "unsupported display driver",
    ],
    follow: 0,
    read: |text| {
        let messages = [
            "Driver/library version mismatch",
            "The NVIDIA driver on your system is too old (found version",
            "CUDA driver version is insufficient for CUDA runtime version",
            "system has unsupported display driver / cuda driver combination",
        ];
        let said = messages.iter().any(|message| is_said(text, message));
        if said { Reading::whole(FailureCause::DriverMismatch) } else { None }
    },
};

/// A GPU that answered before and does so no more.
pub(super) const LOST: Signature = Signature {
    name: "gpu_lost",
    needles: &["NVML_ERROR_GPU_IS_LOST", "GPU is lost"],
    follow: 0,
    read: |text| {
        let lost = has(text, "NVMLError_GpuIsLost: GPU is lost")
            || is_said(text, "NVML_ERROR_GPU_IS_LOST")
            || text.ends_with("GPU is lost.  Reboot the system to recover this GPU");
        if lost { Reading::whole(FailureCause::Xid { code: None, hardware: true }) } else { None }
    },
};
