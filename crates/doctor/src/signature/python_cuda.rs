//! Other users of CUDA in a training's process: CuPy, bitsandbytes and RAPIDS.

use super::{Reading, Signature, is_said};
use crate::cause::FailureCause;
use crate::memory::GpuMemory;
use crate::text::{has_phrase, text_after};

fn cuda(requested: Option<u64>, allocated: Option<u64>) -> Option<Reading> {
    let memory = GpuMemory { backend: "CUDA", requested, allocated, ..GpuMemory::default() };
    Reading::whole(FailureCause::GpuMemory(memory))
}

pub(super) const CUPY: Signature = Signature {
    name: "cupy_memory",
    needles: &["ut of memory"],
    also: &["OutOfMemoryError: Out of memory allocating "],
    follow: 0,
    read: |text| {
        let message = text_after(text, "OutOfMemoryError: Out of memory allocating ")?;
        cuda(grouped(message), text_after(message, "allocated so far: ").and_then(grouped))
    },
};

/// `6,000,000,512 bytes`
fn grouped(text: &str) -> Option<u64> {
    let digits: String = text.split(' ').next()?.chars().filter(|character| *character != ',').collect();
    digits.parse().ok()
}

/// bitsandbytes' managed memory, which its paged optimizers use.
pub(super) const BITSANDBYTES: Signature = Signature {
    name: "bitsandbytes_memory",
    needles: &["ut of memory"],
    also: &["Error out of memory at line "],
    follow: 0,
    read: |text| {
        let said = is_said(text, "Error out of memory at line ") && has_phrase(text, " in file ");
        if said { cuda(None, None) } else { None }
    },
};

pub(super) const RAPIDS: Signature = Signature {
    name: "rmm_memory",
    needles: &["out_of_memory: CUDA error"],
    also: &[],
    follow: 0,
    read: |text| if has_phrase(text, "std::bad_alloc: out_of_memory: CUDA error at") { cuda(None, None) } else { None },
};
