//! TensorFlow's own allocators.

use super::{Reading, Signature, is_said};
use crate::cause::FailureCause;
use crate::memory::GpuMemory;
use crate::text::{has_phrase, integer_after, size_after, text_after};

pub(super) const TENSOR: Signature = Signature {
    name: "tensorflow_tensor",
    needles: &["OOM when allocating tensor with shape"],
    also: &[],
    follow: 0,
    read: |text| {
        let tensor = text_after(text, "OOM when allocating tensor with shape")?.trim_start_matches('[');
        let requested = tensor_bytes(tensor);
        if has_phrase(tensor, "device:CPU:") || has_phrase(tensor, "by allocator cpu") {
            return Reading::whole(FailureCause::HostMemory { requested, resident: None, pid: None });
        }
        let raised =
            has_phrase(text, "ResourceExhaustedError") || text.to_ascii_lowercase().contains("resource exhausted:");
        let device = integer_after(tensor, "device:GPU:");
        let memory = GpuMemory { backend: "TensorFlow", requested, device, ..GpuMemory::default() };
        if raised || device.is_some() { Reading::whole(FailureCause::GpuMemory(memory)) } else { None }
    },
};

/// The tensor's size, where its type is one whose width is known.
fn tensor_bytes(tensor: &str) -> Option<u64> {
    let (shape, rest) = tensor.split_once(']')?;
    let width: u64 = match text_after(rest, "and type ")?.split(' ').next()? {
        "float" | "int32" | "uint32" => 4,
        "double" | "int64" | "complex64" => 8,
        "half" | "bfloat16" | "int16" => 2,
        "bool" | "int8" | "uint8" => 1,
        _ => return None,
    };
    shape.split(',').try_fold(width, |bytes, length| bytes.checked_mul(length.trim().parse().ok()?))
}

pub(super) const DEVICE: Signature = Signature {
    name: "tensorflow_device",
    needles: &["CUDA_ERROR_OUT_OF_MEMORY"],
    also: &[],
    follow: 0,
    read: |text| {
        let failed = has_phrase(text, "failed to alloc")
            || has_phrase(text, "results in CUDA_ERROR_OUT_OF_MEMORY")
            || text.ends_with(": CUDA_ERROR_OUT_OF_MEMORY: out of memory");
        let requested = integer_after(text, "failed to alloc ")
            .or_else(|| text_after(text, "(").and_then(|size| integer_after(size, "")));
        let memory = GpuMemory { backend: "TensorFlow", requested, ..GpuMemory::default() };
        if failed && !super::is_talk(text) { Reading::whole(FailureCause::GpuMemory(memory)) } else { None }
    },
};

/// Its allocator's own warning, unless it says itself that nothing failed.
pub(super) const ALLOCATOR: Signature = Signature {
    name: "tensorflow_allocator",
    needles: &["ut of memory"],
    also: &["_bfc) ran out of memory trying to allocate "],
    follow: 0,
    read: |text| {
        let allocator = text_after(text, "Allocator (")?;
        let requested = size_after(allocator, "_bfc) ran out of memory trying to allocate ")?;
        if has_phrase(text, "this is not a failure") {
            return None;
        }
        let device = integer_after(allocator, "GPU_");
        let memory = GpuMemory { backend: "TensorFlow", requested: Some(requested), device, ..GpuMemory::default() };
        if device.is_some() {
            return Reading::whole(FailureCause::GpuMemory(memory));
        }
        Reading::whole(FailureCause::HostMemory { requested: Some(requested), resident: None, pid: None })
    },
};

/// What it says where it does not know why memory is missing.
pub(super) const UNEXPLAINED: Signature = Signature {
    name: "tensorflow_unexplained",
    needles: &["failed to allocate memory", "Dst tensor is not copied", "ut of memory"],
    also: &["ResourceExhaustedError", "Dst tensor is not copied", "implicit initialization on GPU"],
    follow: 0,
    read: |text| {
        let exhausted = has_phrase(text, "ResourceExhaustedError: ") && has_phrase(text, "failed to allocate memory");
        let start =
            is_said(text, "CUDA runtime implicit initialization on GPU") && has_phrase(text, "Status: out of memory");
        let copy = is_said(text, "Dst tensor is not copied");
        let memory = GpuMemory { backend: "TensorFlow", likely: copy, ..GpuMemory::default() };
        if exhausted || start || copy { Reading::whole(FailureCause::GpuMemory(memory)) } else { None }
    },
};
