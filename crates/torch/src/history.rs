//! PyTorch's memory history: every allocation and free of the caching allocator, as `torch.cuda.memory._record_memory_history` keeps
//! and `_dump_snapshot` writes them; `tonnage trace` reads the file.

use std::path::Path;

use crate::error::TorchError;
use crate::sys::Torch;

/// A history that is being recorded; it stops when this is dropped.
pub struct History<'a>(&'a Torch);

impl Torch {
    /// Records up to `most` events from here on.
    ///
    /// # Errors
    /// When PyTorch was loaded without its CUDA part.
    pub fn record_history(&self, most: u32) -> Result<History<'_>, TorchError> {
        self.switch_history(true, most)?;
        Ok(History(self))
    }
}

impl History<'_> {
    /// Writes what `torch.cuda.memory._dump_snapshot(path)` writes.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_snapshot(&self, path: &Path) -> Result<(), TorchError> {
        self.0.write_history(path)
    }
}

impl Drop for History<'_> {
    fn drop(&mut self) {
        // Nobody is left to hear that it could not be stopped.
        let _ = self.0.switch_history(false, 1);
    }
}
