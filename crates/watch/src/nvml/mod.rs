//! NVML: `library` and `processes` make each call (the only unsafe code of this crate), `reader` makes a sample of them.

use std::path::Path;

mod library;
mod open_error;
mod processes;
mod reader;
mod structs;

pub use library::Library;
pub use open_error::OpenError;
pub use reader::NvmlSampler;

/// A GPU of this machine as NVML tells of it; `None` what an old driver does not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveGpu {
    /// The product's name.
    pub name: String,
    /// All its memory, also what the driver keeps.
    pub total_bytes: u64,
    /// Compute capability, major and minor.
    pub compute_capability: Option<(u32, u32)>,
    pub cores: Option<u32>,
}

/// The GPUs of this machine; `path` names another library than the driver's.
///
/// # Errors
/// When NVML cannot be loaded or started.
pub fn live_gpus(path: Option<&Path>) -> Result<Vec<LiveGpu>, OpenError> {
    let library = Library::open(path)?;
    let count = library.count().unwrap_or(0);
    let gpu = |index| {
        let device = library.device(index).ok()?;
        Some(LiveGpu {
            name: library.name(device).ok()?,
            total_bytes: library.memory(device).ok()?.total,
            compute_capability: library.compute_capability(device).ok(),
            cores: library.cores(device).ok().filter(|cores| *cores > 0),
        })
    };
    Ok((0..count).filter_map(gpu).collect())
}
