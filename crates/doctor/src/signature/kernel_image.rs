//! Builds without kernels for the GPU at hand: newer or older GPUs than the package was compiled for.

use super::{Reading, Signature};
use crate::cause::FailureCause;
use crate::text::{has_phrase, text_after};
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
        let capability = has_phrase(text, "is not compatible with the current PyTorch installation");
        let raised = has_phrase(text, "rror: no kernel image is available")
            || has_phrase(text, "rror: invalid device function")
            || has_phrase(text, ": no kernel image is available for execution")
            || has_phrase(text, "rror in ") && has_phrase(text, "no kernel image is available")
            || text.starts_with("no kernel image is available")
            || has_phrase(text, "'no kernel image is available for execution on the device'")
            || has_phrase(text, "hipErrorNoBinaryForGpu")
            || has_phrase(text, "CUDA_ERROR_NO_BINARY_FOR_GPU");
        if super::is_talk(text) || !(capability || raised) {
            return None;
        }
        let detail = text_after(text, "CUDA capability ").and_then(|rest| rest.split(' ').next()).map(str::to_owned);
        Reading::whole(FailureCause::Stated { class: Class::NoKernelImage, detail })
    },
};
