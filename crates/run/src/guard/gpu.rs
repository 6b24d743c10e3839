//! What the driver says of the GPU at a moment; told by whoever can read NVML.

/// What the driver says of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuNow {
    pub total_bytes: u64,
    /// In use, by whomever.
    pub used_bytes: u64,
}

/// A look at the run's GPU; `None` where nothing can be seen.
pub type LookAtGpu<'a> = dyn Fn() -> Option<GpuNow> + 'a;
