//! XLA, under JAX and TensorFlow.

use super::{Reading, Signature, is_said};
use crate::cause::FailureCause;
use crate::memory::GpuMemory;
use crate::text::{has_phrase, read_size, size_after, text_after, without_space};

pub(super) const MEMORY: Signature = Signature {
    name: "xla_memory",
    needles: &["RESOURCE_EXHAUSTED: ", "esource exhausted: ", "while trying to allocate"],
    also: &["ut of memory", "trying to allocate", "Failed to allocate request for", "ttempting to "],
    // Statistics of the buffers follow.
    follow: 8,
    read: |text| {
        let text = without_space(text);
        let asked = ["Outofmemorywhiletryingtoallocate", "Outofmemoryallocating", "Failedtoallocaterequestfor"];
        let message = text_after(&text, "RESOURCE_EXHAUSTED:").or_else(|| text_after(&text, "esourceexhausted:"))?;
        let backend = "XLA";
        // Without its figures, which may stand on the next lines.
        if matches!(message, "Outofmemory" | "Outofmemory.") && has_phrase(&text, "Error:RESOURCE_EXHAUSTED:") {
            return Reading::part(Some(FailureCause::GpuMemory(GpuMemory { backend, ..GpuMemory::default() })));
        }
        let requested = asked.iter().find_map(|asked| read_size(message.trim_start().strip_prefix(asked)?))?;
        let total = size_after(&text, "totalallocation:");
        let memory = GpuMemory {
            backend,
            requested: Some(requested),
            unallocated: size_after(&text, "totalfragmentation:"),
            ..GpuMemory::default()
        };
        let complete = total.is_some() && memory.unallocated.is_some();
        let memory = GpuMemory { allocated: total, ..memory };
        Some(Reading { cause: Some(FailureCause::GpuMemory(memory)), complete })
    },
};

/// The high-bandwidth memory of a TPU, whose sizes have one letter: `Used 17.02G of 15.48G hbm`.
pub(super) const HBM: Signature = Signature {
    name: "tpu_memory",
    needles: &["in memory space hbm", "That was not possible"],
    also: &[],
    follow: 0,
    read: |text| {
        let compile = has_phrase(text, "Ran out of memory in memory space hbm");
        let asked = ["Attempting to allocate ", "Attempting to reserve "];
        let requested = asked.iter().find_map(|asked| letter_size(text_after(text, asked)?));
        if !compile && requested.is_none() {
            return None;
        }
        let memory = GpuMemory {
            backend: "XLA",
            requested,
            free: text_after(text, "There are ").and_then(letter_size),
            allocated: text_after(text, "Used ").and_then(letter_size),
            total: text_after(text, "Used ").and_then(|used| letter_size(text_after(used, " of ")?)),
            ..GpuMemory::default()
        };
        Reading::whole(FailureCause::GpuMemory(memory))
    },
};

/// `15.48G` and the like, as XLA's compiler for TPUs prints sizes.
fn letter_size(text: &str) -> Option<u64> {
    let end = text.find(|character: char| !character.is_ascii_digit() && character != '.')?;
    let unit = text.get(end..)?.chars().next().filter(|unit| "KMGT".contains(*unit))?;
    read_size(&format!("{}{unit}iB", text.get(..end)?))
}

/// XLA's buffers for constants.
pub(super) const CONSTANT: Signature = Signature {
    name: "xla_constant",
    needles: &["bytes for new constant"],
    also: &[],
    follow: 0,
    read: |text| {
        let requested = size_after(text, "Failed to allocate ").filter(|_| is_said(text, "Failed to allocate "))?;
        let memory = GpuMemory { backend: "XLA", requested: Some(requested), ..GpuMemory::default() };
        Reading::whole(FailureCause::GpuMemory(memory))
    },
};
