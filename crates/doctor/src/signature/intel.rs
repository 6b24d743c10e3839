//! Intel's GPUs: PyTorch's first message for them, and the runtime's under it (SYCL and Level Zero).

use super::{Reading, Signature, is_said};
use crate::cause::FailureCause;
use crate::memory::GpuMemory;
use crate::text::has_phrase;

fn memory(likely: bool) -> Option<Reading> {
    Reading::whole(FailureCause::GpuMemory(GpuMemory { backend: "XPU", likely, ..GpuMemory::default() }))
}

pub(super) const MEMORY: Signature = Signature {
    name: "xpu_memory",
    needles: &["ut of memory", "Allocation is out of device memory"],
    also: &["XPU out of memory, please", "on current platform"],
    follow: 0,
    read: |text| {
        if is_said(text, "XPU out of memory, please use") || is_said(text, "Allocation is out of device memory") {
            memory(false)
        } else {
            None
        }
    },
};

/// `OUT_OF_RESOURCES` is most often memory too.
pub(super) const RUNTIME: Signature = Signature {
    name: "level_zero_memory",
    needles: &["UR_RESULT_ERROR_OUT_OF_", "PI_ERROR_OUT_OF_RESOURCES"],
    also: &[],
    follow: 0,
    read: |text| {
        let failed =
            has_phrase(text, "level_zero backend failed with error: ") || has_phrase(text, "Native API returns: ");
        if failed && !super::is_talk(text) { memory(!has_phrase(text, "OUT_OF_DEVICE_MEMORY")) } else { None }
    },
};
