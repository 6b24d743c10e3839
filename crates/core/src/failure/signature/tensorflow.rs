//! TensorFlow's own allocators.

use super::{Reading, Signature};
use crate::failure::cause::FailureCause;
use crate::failure::memory::GpuMemory;
use crate::failure::text::{after, has, integer_after};

pub(super) const TENSOR: Signature = Signature {
    name: "tensorflow_tensor",
    needles: &["OOM when allocating tensor with shape["],
    follow: 0,
    read: |text| {
        let tensor = after(text, "OOM when allocating tensor with shape[")?;
        let requested = tensor_bytes(tensor);
        if has(tensor, "device:CPU:") || has(tensor, "by allocator cpu") {
            return Reading::whole(FailureCause::HostMemory { requested, resident: None, pid: None });
        }
        let raised = has(text, "ResourceExhaustedError") || text.to_ascii_lowercase().contains("resource exhausted:");
        let device = integer_after(tensor, "device:GPU:");
        let memory = GpuMemory { backend: "TensorFlow", requested, device, ..GpuMemory::default() };
        if raised || device.is_some() { Reading::whole(FailureCause::GpuMemory(memory)) } else { None }
    },
};

/// The tensor's size, where its type is one whose width is known.
fn tensor_bytes(tensor: &str) -> Option<u64> {
    let (shape, rest) = tensor.split_once(']')?;
    let width: u64 = match after(rest, "and type ")?.split(' ').next()? {
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
    follow: 0,
    read: |text| {
        let failed = has(text, "failed to alloc");
        let requested = integer_after(text, "failed to alloc ")
            .or_else(|| after(text, "(").and_then(|size| integer_after(size, "")));
        let memory = GpuMemory { backend: "TensorFlow", requested, ..GpuMemory::default() };
        if failed && !text.contains('`') { Reading::whole(FailureCause::GpuMemory(memory)) } else { None }
    },
};
