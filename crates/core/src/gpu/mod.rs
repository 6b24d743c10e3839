//! The GPU a job runs on: what the simulation asks of it, and the catalog of known GPUs.

use serde::{Deserialize, Serialize};

/// A GPU as the simulation and the verdict see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Catalog id (`a100-80`).
    pub id: String,
    /// The name for people (`NVIDIA A100 80GB`).
    pub name: String,
    /// Bytes that PyTorch reports as the device's total (the low end across drivers), not the nameplate.
    pub usable_bytes: u64,
    /// Bytes the CUDA context takes outside the allocator; `None` when nobody measured it.
    pub context_bytes: Option<u64>,
    /// Compute capability, major and minor: 9.0 is `(9, 0)`.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors; they size some reductions' scratch space.
    pub multiprocessors: u64,
}
