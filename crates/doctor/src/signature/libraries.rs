//! cuBLAS, cuDNN and their like, which allocate beside PyTorch's allocator when they start.

use super::{Reading, Signature, is_said, says_any};
use crate::cause::FailureCause;
use crate::text::has_phrase;

fn outside(library: &'static str) -> Option<Reading> {
    Reading::whole(FailureCause::OutsideAllocator { library, requested: None })
}

/// Libraries whose statuses PyTorch raises, by the beginning of the status.
const LIBRARIES: &[(&str, &str)] = &[
    ("CUBLAS_STATUS_", "cuBLAS"),
    ("CUSOLVER_STATUS_", "cuSOLVER"),
    ("CUSPARSE_STATUS_", "cuSPARSE"),
    ("CUFFT_", "cuFFT"),
];

pub(super) const CUBLAS: Signature = Signature {
    name: "cublas_memory",
    needles: &[
        "_STATUS_ALLOC_FAILED",
        "CUBLAS_STATUS_NOT_INITIALIZED",
        "CUSOLVER_STATUS_INTERNAL_ERROR",
        "CUFFT_ALLOC_FAILED",
        "resource allocation failed at ",
    ],
    also: &[],
    follow: 0,
    read: |text| {
        if is_said(text, "cublas runtime error : resource allocation failed at ") {
            return outside("cuBLAS");
        }
        let (status, library) = LIBRARIES.iter().find(|(status, _)| has_phrase(text, status))?;
        // A handle that cannot be made, or an allocation that is refused.
        let made = has_phrase(text, "when calling `cublasCreate")
            || has_phrase(text, "when calling `cusolverDnCreate")
            || has_phrase(text, "failed to create cublas handle: CUBLAS");
        let refused = has_phrase(text, "ALLOC_FAILED") && says_any(text, &[&format!("CUDA error: {status}"), status]);
        if made || refused { outside(library) } else { None }
    },
};

pub(super) const CUDNN: Signature = Signature {
    name: "cudnn_memory",
    needles: &[
        "_STATUS_ALLOC_FAILED",
        "CUDNN_STATUS_NOT_INITIALIZED",
        "CUDNN_STATUS_NOT_SUPPORTED",
        "CUDNN_STATUS_INTERNAL_ERROR",
    ],
    also: &[],
    follow: 0,
    read: |text| {
        let raised = (has_phrase(text, "cuDNN error: CUDNN_STATUS_") || has_phrase(text, "CuDNN error: CUDNN_STATUS_"))
            || is_said(text, "CUDNN_STATUS_ALLOC_FAILED")
            || has_phrase(text, "ould not create cudnn handle: CUDNN");
        if raised && !super::is_talk(text) { outside("cuDNN") } else { None }
    },
};

/// cuDNN found no algorithm, most often for want of a workspace.
pub(super) const CUDNN_ENGINE: Signature = Signature {
    name: "cudnn_engine",
    needles: &["cuDNN algorithm to run convolution", "unable to find an engine to execute this computation"],
    also: &[],
    follow: 0,
    read: |text| {
        let messages = [
            "Unable to find a valid cuDNN algorithm to run convolution",
            "GET was unable to find an engine to execute this computation",
            "FIND was unable to find an engine to execute this computation",
        ];
        if says_any(text, &messages) { outside("cuDNN") } else { None }
    },
};
