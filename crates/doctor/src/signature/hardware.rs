//! Memory and links of a GPU that are broken, as CUDA states it: not the program's fault.

use super::{Reading, Signature};
use crate::cause::FailureCause;
use crate::text::has_phrase;
use tonnage_core::failure::Class;

fn broken(what: &str) -> Option<Reading> {
    Reading::whole(FailureCause::Stated { class: Class::GpuHardware, detail: Some(what.to_owned()) })
}

pub(super) const ECC: Signature = Signature {
    name: "gpu_ecc",
    needles: &["uncorrectable ECC error", "ECC_UNCORRECTABLE", "cuda runtime error ("],
    also: &[],
    follow: 0,
    read: |text| {
        let stated = has_phrase(text, "rror: uncorrectable ECC error encountered")
            || has_phrase(text, "CUDA_ERROR_ECC_UNCORRECTABLE")
            || has_phrase(text, "cudaErrorECCUncorrectable")
            || has_phrase(text, "uncorrectable ECC error encountered at ")
            || text.ends_with("uncorrectable ECC error encountered")
            || text.ends_with("uncorrectable ECC error encountered'")
            || has_phrase(text, "cuda runtime error (39)")
            || has_phrase(text, "cuda runtime error (214)");
        if stated && !super::is_talk(text) { broken("ECC") } else { None }
    },
};

pub(super) const NVLINK: Signature = Signature {
    name: "gpu_nvlink",
    needles: &["uncorrectable NVLink error", "NVLINK_UNCORRECTABLE", "Nvlink error"],
    also: &[],
    follow: 0,
    read: |text| {
        let stated = has_phrase(text, "rror: uncorrectable NVLink error")
            || has_phrase(text, "CUDA_ERROR_NVLINK_UNCORRECTABLE")
            || has_phrase(text, "cudaErrorNvlinkUncorrectable")
            || text.ends_with("uncorrectable NVLink error detected during the execution")
            || text.ends_with("uncorrectable NVLink error detected during the execution'");
        if stated && !super::is_talk(text) { broken("NVLink") } else { None }
    },
};
