//! Builds without kernels for the GPU at hand: newer or older GPUs than the package was compiled for.

use super::{Reading, Signature};
use crate::cause::FailureCause;
use crate::text::{after, has};
use tonnage_core::failure::Class;

pub(super) const IMAGE: Signature = Signature {
    name: "no_kernel_image",
    needles: &[
        "no kernel image is available",
        "invalid device function",
        "is not compatible with the current PyTorch installation",
        "NO_BINARY_FOR_GPU",
        "hipErrorNoBinaryForGpu",
        "no kernel image for ",
    ],
    also: &[],
    follow: 0,
    read: |text| {
        let capability = has(text, "is not compatible with the current PyTorch installation");
        let raised = has(text, "rror: no kernel image is available")
            || has(text, "rror: invalid device function")
            || has(text, ": no kernel image is available for execution")
            || has(text, "rror in ") && has(text, "no kernel image is available")
            || text.starts_with("no kernel image is available")
            || has(text, "'no kernel image is available for execution on the device'")
            || has(text, "hipErrorNoBinaryForGpu")
            || has(text, "CUDA_ERROR_NO_BINARY_FOR_GPU");
        if super::is_talk(text) || !(capability || raised) {
            return None;
        }
        let detail = after(text, "CUDA capability ").and_then(|rest| rest.split(' ').next()).map(str::to_owned);
        Reading::whole(FailureCause::Stated { class: Class::NoKernelImage, detail })
    },
};
