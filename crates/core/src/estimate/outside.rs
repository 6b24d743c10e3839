//! What the process holds on the GPU outside the allocator: the CUDA context.

use crate::gpu::Gpu;
use crate::units::MIB;

/// Per multiprocessor, the two contexts that were measured (AgileRL, memory-estimation branch): L4 226 MiB / 58 = 3.9 MiB,
/// A100 501 MiB / 108 = 4.6 MiB. The bounds stand a little outside them.
const LOW_PER_MULTIPROCESSOR: u64 = 7 * MIB / 2;
const HIGH_PER_MULTIPROCESSOR: u64 = 5 * MIB;

/// Bytes outside the allocator, from `low` to `high`; equal where measured.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outside {
    /// At least this.
    pub low: u64,
    /// At most this; what the verdict counts with.
    pub high: u64,
    /// Where the figure comes from.
    pub source: &'static str,
}

/// The context of `gpu`.
pub(crate) fn outside_bytes(gpu: &Gpu) -> Outside {
    match gpu.context_bytes {
        Some(bytes) => Outside { low: bytes, high: bytes, source: "measured on this GPU" },
        None => Outside {
            low: gpu.multiprocessors * LOW_PER_MULTIPROCESSOR,
            high: gpu.multiprocessors * HIGH_PER_MULTIPROCESSOR,
            source: "3.5 to 5 MiB per multiprocessor, from an L4 and an A100",
        },
    }
}
