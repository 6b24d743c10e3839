//! PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp): out of memory, and what it says instead of it.

use super::{Reading, Signature};
use crate::cause::FailureCause;
use crate::memory::GpuMemory;
use crate::text::{
    find_phrase, has_phrase, integer_after, read_integer, size_after, size_before, text_after, without_space,
};

pub(super) const MEMORY: Signature = Signature {
    name: "torch_memory",
    needles: &["ut of memory"],
    also: BEGINNINGS,
    // Wrapped at 80 columns a message is eight lines long.
    follow: 8,
    read: memory,
};

/// The first words, which a terminal may break anywhere; code that looks for them has a quote instead of the blank.
const BEGINNINGS: &[&str] = &[
    "\u{2026}. Tried to allocate ",
    // An allocator that states nothing, or a wrapper that raises without the numbers.
    "Error: CUDA out of memory",
    "Error: HIP out of memory",
];

/// The same where the terminal broke the line before.
pub(super) const REST: Signature = Signature {
    name: "torch_memory",
    needles: &["Tried to allocate"],
    also: &["GPU ", "GPU\n", "total capac"],
    follow: 8,
    read: memory,
};

/// The message without blanks, as blanks are where terminals break lines.
fn memory(text: &str) -> Option<Reading> {
    if let Some(bare) = without_numbers(text) {
        return Some(bare);
    }
    if !has_phrase(text, "Tried") && !ends_early(text) {
        return None;
    }
    let text = without_space(text);
    let Some(start) = find_phrase(&text, "outofmemory.Triedtoallocate") else { return without_its_head(&text) };
    let backend = backend(text.get(..start)?)?;
    let message = text.get(start..)?;
    let Some(requested) = size_after(message, "Triedtoallocate") else {
        let rest = text_after(message, "Triedtoallocate")?;
        let cut =
            rest.len() < 12 && rest.chars().all(|character| character.is_ascii_digit() || ".KMGiB".contains(character));
        return if cut { Reading::part(None) } else { None };
    };
    numbers(message, backend, requested)
}

/// An exception whose first line is `CUDA out of memory` and no more: the numbers may follow, or never.
fn without_numbers(text: &str) -> Option<Reading> {
    let head = text.strip_suffix('.').unwrap_or(text).strip_suffix(" out of memory")?;
    let backend = ["CUDA", "HIP"].into_iter().find(|backend| head.ends_with(backend))?;
    let raised = head.strip_suffix(backend)?.strip_suffix("Error: ")?;
    // A sentence that talks of the error has words before its name.
    let before = raised.rsplit_once(' ').map_or("", |(before, _)| before.trim_end());
    let is_raised = before.is_empty() || before.ends_with([':', ']', '-', ')', '|']);
    let memory = GpuMemory { backend, of_pytorch: true, ..GpuMemory::default() };
    if is_raised { Reading::part(Some(FailureCause::GpuMemory(memory))) } else { None }
}

/// Whether the line ends within the message's first words.
fn ends_early(text: &str) -> bool {
    text_after(text, "out of memory.").is_some_and(|rest| rest.len() < "Tried to allocate 123.45 MiB".len())
}

/// A line that a terminal broke inside the first words.
fn without_its_head(text: &str) -> Option<Reading> {
    if let Some(message) = text_after(text, "Triedtoallocate") {
        let is_torch = has_phrase(message, "hasatotalcapac") || has_phrase(message, "totalcapacity;");
        let requested = size_after(text, "Triedtoallocate").filter(|_| is_torch && !super::is_talk(text))?;
        return numbers(text.get(find_phrase(text, "Triedtoallocate")?..)?, "CUDA", requested);
    }
    let rest = text_after(text, "outofmemory.")?;
    backend(text.get(..find_phrase(text, "outofmemory.")?)?)?;
    if "Triedtoallocate".starts_with(rest) { Reading::part(None) } else { None }
}

/// The word before `out of memory`, where it names PyTorch's device; not in code or backticks.
fn backend(head: &str) -> Option<&'static str> {
    let backend = ["CUDA", "HIP", "XPU", "NPU", "MUSA"].into_iter().find(|name| head.ends_with(name))?;
    let before = head.strip_suffix(backend)?;
    let quoted = before.ends_with(['`', '(', '=', '<', '*']) || before.ends_with("(\"") || before.ends_with("('");
    (!quoted).then_some(backend)
}

fn numbers(message: &str, backend: &'static str, requested: u64) -> Option<Reading> {
    let old = has_phrase(message, "totalcapacity;");
    let mut memory = if old { forms_to_2_0(message) } else { forms_from_2_1(message) };
    memory.backend = backend;
    memory.of_pytorch = true;
    memory.requested = Some(requested);
    let ends = ["butunallocated", "cached)", "byPyTorch)"];
    let complete = ends.iter().any(|end| has_phrase(message, end));
    let cause = FailureCause::GpuMemory(memory);
    if complete { Reading::whole(cause) } else { Reading::part(Some(cause)) }
}

/// `(GPU 0; T total capacity; A already allocated; F free; R reserved in total by PyTorch)`; before 1.5 what is in the
/// cache and not allocated stands there alone, as `C cached`.
fn forms_to_2_0(message: &str) -> GpuMemory {
    let allocated = size_before(message, "alreadyallocated");
    let reserved = size_before(message, "reservedintotal");
    let left = reserved.zip(allocated).map(|(reserved, allocated)| reserved.saturating_sub(allocated));
    let unallocated = left.or_else(|| size_before(message, "cached)"));
    GpuMemory {
        device: integer_after(message, "(GPU"),
        total: size_before(message, "totalcapacity"),
        free: size_before(message, "free;"),
        allowed: size_before(message, "allowed;"),
        allocated,
        unallocated,
        ..GpuMemory::default()
    }
}

/// `GPU 0 has a total capacity of T of which F is free. ...` (2.1 wrote `capacty`).
fn forms_from_2_1(message: &str) -> GpuMemory {
    let total = size_after(message, "totalcapacityof").or_else(|| size_after(message, "totalcapactyof"));
    GpuMemory {
        device: find_phrase(message, "hasatotalcapac").and_then(|end| index_before(message.get(..end)?)),
        total,
        free: size_before(message, "isfree"),
        this_process: size_after(message, "Includingnon-PyTorchmemory,thisprocesshas"),
        processes: processes(message),
        allowed: size_before(message, "allowed;"),
        allocated: size_before(message, "isallocatedbyPyTorch"),
        private_pools: size_before(message, "allocatedinprivatepools"),
        unallocated: size_before(message, "isreservedbyPyTorchbutunallocated"),
        ..GpuMemory::default()
    }
}

/// The device's index at the end of `...GPU0`; some drivers leave it out.
fn index_before(head: &str) -> Option<u64> {
    read_integer(head.get(head.rfind("GPU")? + 3..)?)
}

/// Every `Process N has S memory in use`.
fn processes(message: &str) -> Vec<(u64, u64)> {
    let entry = |(at, _): (usize, &str)| {
        let entry = message.get(at + "Process".len()..)?;
        Some((read_integer(entry)?, size_after(entry.get(..entry.len().min(64)).unwrap_or(entry), "has")?))
    };
    message.match_indices("Process").filter_map(entry).collect()
}

pub(super) const EXABYTE: Signature = Signature {
    name: "torch_exabyte",
    needles: &["more than 1EB memory"],
    also: &[],
    follow: 0,
    read: |text| {
        let asked = has_phrase(text, "out of memory. Tried to allocate more than 1EB memory");
        let memory = GpuMemory { backend: "CUDA", of_pytorch: true, requested: Some(1 << 60), ..GpuMemory::default() };
        if asked { Reading::whole(FailureCause::GpuMemory(memory)) } else { None }
    },
};

/// The allocator could not even ask NVML for the numbers of its message (MIG, containers, Jetson).
pub(super) const NVML_ASSERT: Signature = Signature {
    name: "torch_nvml_assert",
    needles: &["NVML_SUCCESS == "],
    also: &[],
    follow: 0,
    read: |text| assert_in_allocator(text, "NVML_SUCCESS == "),
};

/// A segment whose pages could not be mapped.
pub(super) const EXPANDABLE_ASSERT: Signature = Signature {
    name: "torch_expandable_assert",
    needles: &["handles_.at("],
    also: &[],
    follow: 0,
    read: |text| assert_in_allocator(text, "!handles_.at("),
};

fn assert_in_allocator(text: &str, condition: &str) -> Option<Reading> {
    let failed = text_after(text, condition)?.split_once("INTERNAL ASSERT FAILED at")?.1;
    if !has_phrase(failed, "CUDACachingAllocator.cpp\":") {
        return None;
    }
    Reading::whole(FailureCause::GpuMemory(GpuMemory {
        backend: "CUDA",
        of_pytorch: true,
        likely: true,
        ..GpuMemory::default()
    }))
}

/// `torch/csrc/StorageSharing.cpp`
pub(super) const EXPANDABLE_SHARING: Signature = Signature {
    name: "torch_expandable_sharing",
    needles: &["expandable_segments:True cannot be shared between processes"],
    also: &[],
    follow: 0,
    read: |text| {
        let said = super::is_said(text, "Tensors allocated with expandable_segments:True cannot be shared");
        if said { Reading::whole(FailureCause::ExpandableSharing) } else { None }
    },
};
