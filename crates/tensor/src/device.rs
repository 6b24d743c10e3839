//! The GPU as PyTorch's host code sees it.

/// What PyTorch's host code asks of a device when it sizes workspaces and chooses kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Device {
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors, as the driver says.
    pub multiprocessors: u64,
}

/// The oldest GPUs that CUDA 13 compiles for: it left out Maxwell, Pascal and Volta (CUDA 13.0 release notes).
const OLDEST_OF_CUDA_13: (u32, u32) = (7, 5);

impl Device {
    /// Whether PyTorch's builds for CUDA 13, which pip installs, run on it.
    pub fn runs_newest_builds(self) -> bool {
        self.compute_capability >= OLDEST_OF_CUDA_13
    }

    /// Resident threads per multiprocessor (CUDA programming guide, table of technical specifications).
    pub const fn threads_per_multiprocessor(self) -> u64 {
        match self.compute_capability {
            (7, 5) => 1024,
            (8, 6..=9) | (12, _) => 1536,
            _ => 2048,
        }
    }
}
