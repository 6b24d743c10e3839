//! XLA, under JAX and TensorFlow.

use super::{Reading, Signature};
use crate::failure::cause::FailureCause;
use crate::failure::memory::GpuMemory;
use crate::failure::text::{compact, has, size_after};

pub(super) const MEMORY: Signature = Signature {
    name: "xla_memory",
    needles: &["RESOURCE_EXHAUSTED: ", "Resource exhausted: Out of memory", "while trying to allocate"],
    // Statistics of the buffers follow.
    follow: 8,
    read: |text| {
        if !has(text, "while trying") {
            return None;
        }
        let text = compact(text);
        let asked = [
            "RESOURCE_EXHAUSTED:Outofmemorywhiletryingtoallocate",
            "Resourceexhausted:Outofmemorywhiletryingtoallocate",
        ];
        let requested = asked.iter().find_map(|asked| size_after(&text, asked))?;
        let total = size_after(&text, "totalallocation:");
        let memory = GpuMemory {
            backend: "XLA",
            requested: Some(requested),
            unallocated: size_after(&text, "totalfragmentation:"),
            ..GpuMemory::default()
        };
        let complete = total.is_some() && memory.unallocated.is_some();
        let memory = GpuMemory { allocated: total, ..memory };
        Some(Reading { cause: Some(FailureCause::GpuMemory(memory)), complete })
    },
};
