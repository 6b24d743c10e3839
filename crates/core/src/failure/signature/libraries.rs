//! cuBLAS and cuDNN, which allocate beside PyTorch's allocator when they start.

use super::{Reading, Signature};
use crate::failure::cause::FailureCause;
use crate::failure::text::has;

fn outside(library: &'static str) -> Option<Reading> {
    Reading::whole(FailureCause::OutsideAllocator { library, requested: None })
}

pub(super) const CUBLAS: Signature = Signature {
    name: "cublas_memory",
    needles: &["CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED"],
    follow: 0,
    read: |text| {
        let made = has(text, "when calling `cublasCreate") || has(text, "failed to create cublas handle: CUBLAS");
        let called = has(text, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `");
        if made || called { outside("cuBLAS") } else { None }
    },
};

pub(super) const CUDNN: Signature = Signature {
    name: "cudnn_memory",
    needles: &[
        "CUDNN_STATUS_ALLOC_FAILED",
        "CUDNN_STATUS_NOT_INITIALIZED",
        "CUDNN_STATUS_NOT_SUPPORTED",
        "CUDNN_STATUS_INTERNAL_ERROR",
    ],
    follow: 0,
    read: |text| {
        let raised = has(text, "cuDNN error: CUDNN_STATUS_") || has(text, "could not create cudnn handle: CUDNN");
        if raised && !text.contains('`') { outside("cuDNN") } else { None }
    },
};
