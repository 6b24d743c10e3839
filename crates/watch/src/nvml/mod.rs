//! NVML: `library` and `processes` make each call (the only unsafe code of this crate), `reader` makes a sample of them.

use std::path::Path;

mod library;
mod processes;
mod reader;
mod structs;

pub use library::{Library, OpenError};
pub use reader::NvmlSampler;

/// Names and bytes of the GPUs of this machine; `path` names another library than the driver's.
///
/// # Errors
/// When NVML cannot be loaded or started.
pub fn live_gpus(path: Option<&Path>) -> Result<Vec<(String, u64)>, OpenError> {
    let library = Library::open(path)?;
    let count = library.count().unwrap_or(0);
    let gpu = |index| {
        let device = library.device(index).ok()?;
        Some((library.name(device).ok()?, library.memory(device).ok()?.total))
    };
    Ok((0..count).filter_map(gpu).collect())
}
