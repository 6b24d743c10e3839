//! Runtimes of other frameworks: TensorRT, ONNX Runtime, Paddle.

use super::{Reading, Signature, is_said};
use crate::cause::FailureCause;
use crate::memory::GpuMemory;
use crate::text::{has_phrase, integer_after, size_after, size_before, text_after};

pub(super) const TENSORRT: Signature = Signature {
    name: "tensorrt_memory",
    needles: &["Error Code 1: Cuda Runtime (out of", "Error Code 2: OutOfMemory"],
    also: &[],
    follow: 0,
    read: |text| {
        let requested = integer_after(text, "Requested size was ");
        let memory = GpuMemory { backend: "TensorRT", requested, ..GpuMemory::default() };
        let said =
            is_said(text, "Error Code 1: Cuda Runtime (out of memory)") || is_said(text, "Error Code 2: OutOfMemory");
        if said { Reading::whole(FailureCause::GpuMemory(memory)) } else { None }
    },
};

pub(super) const ONNX: Signature = Signature {
    name: "onnx_memory",
    needles: &["onnxruntime::BFCArena::AllocateRawInternal"],
    also: &[],
    follow: 0,
    read: |text| {
        let requested = integer_after(text, "requested buffer of size ")
            .or_else(|| integer_after(text, "smaller than requested bytes of "))?;
        let memory = GpuMemory { backend: "ONNX", requested: Some(requested), ..GpuMemory::default() };
        Reading::whole(FailureCause::GpuMemory(memory))
    },
};

pub(super) const PADDLE: Signature = Signature {
    name: "paddle_memory",
    needles: &["ut of memory"],
    also: &["Out of memory error on GPU "],
    follow: 0,
    read: |text| {
        let message = text_after(text, "Out of memory error on GPU ")?;
        let requested =
            size_after(message, "Cannot allocate ").filter(|_| is_said(text, "Out of memory error on GPU"))?;
        let memory = GpuMemory {
            backend: "Paddle",
            requested: Some(requested),
            device: integer_after(message, ""),
            allocated: size_before(message, " memory has been allocated"),
            free: size_after(message, "available memory is only "),
            ..GpuMemory::default()
        };
        if has_phrase(message, "memory has been allocated") {
            Reading::whole(FailureCause::GpuMemory(memory))
        } else {
            None
        }
    },
};
