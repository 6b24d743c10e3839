//! The caching allocator of CUDA devices: its figures and its memory history.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::functions::CudaFunctions;
use super::{Torch, error_of_kind};
use crate::device::Device;
use crate::error::TorchError;

impl Torch {
    fn cuda(&self) -> Result<&CudaFunctions, TorchError> {
        self.cuda.as_ref().ok_or_else(|| {
            TorchError::setup("nothing is known of the caching allocator: PyTorch was loaded without its CUDA part")
                .hinted("a PyTorch for CUDA is needed; before 2.9 also CUDA's headers (CUDA_HOME)")
        })
    }

    pub(crate) fn memory_figures(&self, device: Device) -> Result<[i64; 6], TorchError> {
        let (cuda, mut figures) = (self.cuda()?, [0; 6]);
        // SAFETY: the shim writes six numbers.
        cuda.check(unsafe { (cuda.tonnage_memory)(device.index(), figures.as_mut_ptr()) })?;
        Ok(figures)
    }

    pub(crate) fn reset_peak_of(&self, device: Device) -> Result<(), TorchError> {
        let cuda = self.cuda()?;
        // SAFETY: a number.
        cuda.check(unsafe { (cuda.tonnage_reset_peak)(device.index()) })
    }

    /// Gives cached blocks back to the driver.
    ///
    /// # Errors
    /// Without CUDA.
    pub fn empty_cache(&self) -> Result<(), TorchError> {
        let cuda = self.cuda()?;
        // SAFETY: no arguments.
        cuda.check(unsafe { (cuda.tonnage_empty_cache)() })
    }

    pub(crate) fn switch_history(&self, on: bool, most: u32) -> Result<(), TorchError> {
        let cuda = self.cuda()?;
        // SAFETY: numbers.
        cuda.check(unsafe { (cuda.tonnage_record_history)(i32::from(on), i64::from(most)) })
    }

    pub(crate) fn write_history(&self, path: &Path) -> Result<(), TorchError> {
        let cuda = self.cuda()?;
        let path =
            CString::new(path.as_os_str().as_bytes()).map_err(|_| TorchError::setup("a path with a zero byte"))?;
        // SAFETY: a C string that outlives the call.
        cuda.check(unsafe { (cuda.tonnage_write_snapshot)(path.as_ptr()) })
    }
}

impl CudaFunctions {
    fn check(&self, code: i32) -> Result<(), TorchError> {
        if code >= 0 {
            return Ok(());
        }
        let mut kind = 0;
        // SAFETY: the text is this thread's own and lives until its next error; it is copied before that.
        let text = unsafe { CStr::from_ptr((self.tonnage_cuda_error)(&raw mut kind)) }.to_string_lossy().into_owned();
        Err(error_of_kind(kind, text))
    }
}
