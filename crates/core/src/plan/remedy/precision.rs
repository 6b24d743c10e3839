//! Half precision.

use super::{Declined, Remedy, Results, already_done, change_one, is_read};
use crate::job::keys;
use crate::job::{JobSpec, Precision};

/// bf16 where the GPU has units for it.
fn has_bf16(job: &JobSpec) -> Result<(), Declined> {
    is_read(job, keys::PRECISION)?;
    match job.gpu.compute_capability < (8, 0) {
        true => Err(Declined::NotApplicable("the GPU has no units for bf16")),
        false => Ok(()),
    }
}

pub(super) const AUTOCAST: Remedy = Remedy {
    name: "autocast",
    text: "compute in bf16 over fp32 weights",
    results: Results::Rounding,
    caution: "",
    apply: |job| match job.precision {
        Precision::Fp32 => has_bf16(job).and_then(|()| change_one(keys::PRECISION, "amp-bf16")),
        _ => already_done("it computes in half precision already"),
    },
};

pub(super) const HALF_WEIGHTS: Remedy = Remedy {
    name: "half_weights",
    text: "hold weights, gradients and optimizer state in bf16",
    results: Results::Changed,
    caution: "",
    apply: |job| match job.precision {
        Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16 => {
            has_bf16(job).and_then(|()| change_one(keys::PRECISION, "bf16"))
        }
        _ => already_done("weights are in half precision already"),
    },
};
