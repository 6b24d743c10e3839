//! PyTorch on Apple's GPUs (aten/src/ATen/mps/MPSAllocator.mm).

use super::{Reading, Signature, is_said};
use crate::cause::FailureCause;
use crate::memory::GpuMemory;
use crate::text::{has_phrase, size_after, without_space};

pub(super) const MEMORY: Signature = Signature {
    name: "mps_memory",
    needles: &["ut of memory"],
    also: &["MPS backend"],
    follow: 4,
    read: |text| {
        if !has_phrase(text, "MPS") {
            return None;
        }
        let text = without_space(text);
        let allocated = size_after(&text, "MPSbackendoutofmemory(MPSallocated:")?;
        let memory = GpuMemory {
            backend: "MPS",
            of_pytorch: true,
            requested: size_after(&text, "Triedtoallocate"),
            processes: size_after(&text, "otherallocations:").map(|bytes| (0, bytes)).into_iter().collect(),
            // The limit is the whole device's, a share of what Metal recommends.
            total: size_after(&text, "maxallowed:"),
            allocated: Some(allocated),
            ..GpuMemory::default()
        };
        let complete = memory.requested.is_some();
        Some(Reading { cause: Some(FailureCause::GpuMemory(memory)), complete })
    },
};

/// Metal refuses a buffer that is larger than the device allows: one tensor, usually attention scores.
pub(super) const BUFFER: Signature = Signature {
    name: "mps_buffer",
    needles: &["Invalid buffer size: "],
    also: &[],
    follow: 0,
    read: |text| {
        let requested = size_after(text, "Invalid buffer size: ")?;
        let memory = GpuMemory { backend: "MPS", requested: Some(requested), ..GpuMemory::default() };
        if is_said(text, "Invalid buffer size: ") { Reading::whole(FailureCause::GpuMemory(memory)) } else { None }
    },
};
