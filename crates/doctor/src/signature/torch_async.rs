//! PyTorch over CUDA's own pool (c10/cuda/CUDAMallocAsyncAllocator.cpp), whose message stands on several lines.

use super::{Reading, Signature, is_said};
use crate::cause::FailureCause;
use crate::memory::GpuMemory;
use crate::text::{has_phrase, integer_after, size_after, without_space};

pub(super) const MEMORY: Signature = Signature {
    name: "torch_async_memory",
    needles: &["Allocation on device"],
    also: &["OutOfMemoryError: Allocation on device", "would exceed allowed memory"],
    // Six lines, each of which a terminal may break.
    follow: 11,
    read: |text| {
        let exceeds = is_said(text, "Allocation on device") && has_phrase(text, "would exceed allowed memory");
        if !exceeds && !has_phrase(text, "OutOfMemoryError: Allocation on device") {
            return None;
        }
        let text = without_space(text);
        // Without a limit of the user's, the largest number there is stands for it.
        let allowed = size_after(&text, "memoryfraction):");
        let memory = GpuMemory {
            backend: "CUDA",
            of_pytorch: true,
            device: integer_after(&text, "Allocationondevice"),
            requested: size_after(&text, "Requested:"),
            total: size_after(&text, "Devicelimit:"),
            free: size_after(&text, "Free(accordingtoCUDA):"),
            allocated: size_after(&text, "Currentlyallocated:"),
            allowed: allowed.filter(|allowed| *allowed < 1 << 60),
            ..GpuMemory::default()
        };
        let complete = has_phrase(&text, "memoryfraction):") && allowed.is_some();
        Some(Reading { cause: Some(FailureCause::GpuMemory(memory)), complete })
    },
};
